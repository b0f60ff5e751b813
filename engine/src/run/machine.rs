//! What this machine is, for the record of what it computed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::OnceLock;

/// `cpu` (model and number in use), `memory`, `os`, and with GPUs in use `gpu`. Linux only: empty
/// elsewhere. Reads `/proc`, so it needs no driver library.
pub fn describe(gpus: u32) -> BTreeMap<String, String> {
    static FACTS: OnceLock<BTreeMap<String, String>> = OnceLock::new();
    let mut facts = FACTS.get_or_init(without_gpus).clone();
    if gpus > 0 {
        let folders = fs::read_dir("/proc/driver/nvidia/gpus").into_iter().flatten().flatten();
        let models: BTreeSet<String> = folders
            .filter_map(|folder| field(&fs::read_to_string(folder.path().join("information")).ok()?, "Model"))
            .collect();
        let models: Vec<String> = models.into_iter().collect();
        facts.insert("gpu".to_owned(), format!("{gpus} × {}", models.join(" or ")).trim_end().to_owned());
    }
    facts
}

fn field(text: &str, name: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Read once: with many processors the kernel takes its time over the list of them.
fn without_gpus() -> BTreeMap<String, String> {
    let mut facts = BTreeMap::new();
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    if let Some(model) = field(&read("/proc/cpuinfo"), "model name") {
        facts.insert("cpu".to_owned(), format!("{} × {model}", super::slots::machine_cpus()));
    }
    let memory = field(&read("/proc/meminfo"), "MemTotal");
    if let Some(kib) = memory.and_then(|text| text.split(' ').next()?.parse::<u64>().ok()) {
        facts.insert("memory".to_owned(), bytesize::ByteSize::kib(kib).display().iec().to_string());
    }
    let kernel = read("/proc/sys/kernel/osrelease");
    if !kernel.is_empty() {
        facts.insert("os".to_owned(), format!("Linux {}", kernel.trim()));
    }
    facts
}

/// The largest resident memory so far of this process, or of the largest child that has ended.
pub fn peak_memory() -> u64 {
    let peak = |who| {
        // SAFETY: `usage` is plain data that getrusage fills in.
        unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            if libc::getrusage(who, &mut usage) == 0 { usage.ru_maxrss as u64 } else { 0 }
        }
    };
    // Linux counts KiB, macOS bytes.
    let unit = if cfg!(target_os = "macos") { 1 } else { 1024 };
    let own = high_water().unwrap_or_else(|| unit * peak(libc::RUSAGE_SELF));
    own.max(unit * peak(libc::RUSAGE_CHILDREN))
}

/// The most that this program itself had, where Linux tells. What getrusage tells of a process began
/// with the memory of the one that it was forked from: a worker's with its engine's.
fn high_water() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let kib: u64 = field(&status, "VmHWM")?.split(' ').next()?.parse().ok()?;
    Some(1024 * kib)
}

#[cfg(test)]
mod tests {
    #[test]
    #[cfg(target_os = "linux")]
    fn this_machine_has_a_processor_and_memory() {
        let facts = super::describe(0);
        assert!(facts["os"].starts_with("Linux ") && !facts.contains_key("gpu"), "{facts:?}");
        assert!(facts["memory"].ends_with('B'), "{facts:?}");
        assert!(super::peak_memory() > 1 << 20);
    }
}
