//! A pipeline program with toy stage kinds, for the engine's tests and benches.

mod kinds;

use std::process::ExitCode;

use engine::cli::{Host, main as pipeline};
use engine::kind::Registry;

fn main() -> ExitCode {
    let registry = Registry::new()
        .with::<kinds::Write>()
        .with::<kinds::Concat>()
        .with::<kinds::Sleep>()
        .with::<kinds::Count>()
        .with::<kinds::Fail>()
        .with::<kinds::Flaky>()
        .with::<kinds::Spawn>()
        .with::<kinds::Pin>()
        .with::<kinds::Device>()
        .with::<kinds::Noisy>();
    pipeline(registry, Host { devices })
}

/// As many GPUs as the test says.
fn devices() -> Vec<String> {
    let count = std::env::var("TOY_GPUS").ok().and_then(|count| count.parse().ok()).unwrap_or(0);
    (0..count).map(|gpu| format!("cuda:{gpu}")).collect()
}
