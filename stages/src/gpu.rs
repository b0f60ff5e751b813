//! A GPU's memory: how much there is, and how it is told.

use engine::kind::StageError;

/// The index of a GPU (`cuda:N`); None for the CPU.
pub fn index(device: &str) -> Option<usize> {
    device.strip_prefix("cuda:")?.parse().ok()
}

/// Bytes of a GPU's memory; None for the CPU, or without the GPU.
pub fn total_memory(device: &str) -> Option<u64> {
    #[cfg(feature = "cuda")]
    return lm::nvidia::total_memory(index(device)?);
    #[cfg(not(feature = "cuda"))]
    index(device).and(None)
}

/// Free and total bytes of a GPU's memory; None for the CPU, or without the GPU.
pub fn memory(device: &str) -> Option<(u64, u64)> {
    #[cfg(feature = "cuda")]
    return lm::nvidia::memory(index(device)?);
    #[cfg(not(feature = "cuda"))]
    index(device).and(None)
}

/// Bytes as people read them (10⁹).
pub fn gigabytes(bytes: u64) -> String {
    format!("{:.1} GB", bytes as f64 / 1e9)
}

/// What a card has beside what is needed, and what would help where that is not enough.
pub fn card(needed: u64, total: Option<u64>, help: impl FnOnce(u64) -> String) -> String {
    match total {
        None => String::new(),
        Some(total) if needed > total => format!("; this card has {}: {}", gigabytes(total), help(total)),
        Some(total) => format!("; this card has {}", gigabytes(total)),
    }
}

/// A stage that needs more memory than a card has.
pub fn too_large(needed: u64, memory: u64, help: String) -> StageError {
    let (needed, memory) = (gigabytes(needed), gigabytes(memory));
    StageError::environment(format!("needs {needed} of GPU memory, and this card has {memory}"))
        .with_help(help)
}
