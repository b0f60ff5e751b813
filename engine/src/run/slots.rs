//! Slots: what the machine offers, and which stage occupies what while it runs.

use std::num::NonZero;

use crate::plan::PlannedStage;

/// What a stage occupies while it runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Need {
    /// GPUs.
    pub gpus: usize,
    /// Bytes of host memory.
    pub memory: u64,
    /// CPUs.
    pub cpus: usize,
}

impl Need {
    /// What a stage needs on a machine with or without GPUs: without, nothing waits for one.
    pub fn of(stage: &PlannedStage, machine_has_gpus: bool) -> Self {
        let declared = match stage.resources.gpus {
            0 => stage.stage.default_gpus(),
            gpus => gpus,
        };
        Self {
            gpus: if machine_has_gpus { declared as usize } else { 0 },
            memory: stage.resources.memory,
            cpus: stage.resources.cpus.max(1) as usize,
        }
    }
}

/// What a running stage holds; hand it back with [`Slots::give_back`].
#[derive(Debug, PartialEq, Eq)]
pub struct Grant {
    /// Indices of its GPUs in the run's device list.
    pub gpus: Vec<usize>,
    memory: u64,
    cpus: usize,
}

/// The machine's slots.
#[derive(Debug)]
pub struct Slots {
    jobs: usize,
    free_gpus: Vec<usize>,
    memory: u64,
    free_memory: u64,
    cpus: usize,
    free_cpus: usize,
    running: usize,
}

impl Slots {
    /// `jobs` stages side by side on `gpus` GPUs, `memory` bytes and `cpus` CPUs.
    pub fn new(jobs: usize, gpus: usize, memory: u64, cpus: usize) -> Self {
        Self {
            jobs: jobs.max(1),
            free_gpus: (0..gpus).rev().collect(),
            memory,
            free_memory: memory,
            cpus,
            free_cpus: cpus,
            running: 0,
        }
    }

    /// Slots of this machine. More jobs than CPUs means that CPUs are shared on purpose.
    pub fn of_machine(jobs: usize, gpus: usize) -> Self {
        Self::new(jobs, gpus, machine_memory(), machine_cpus().max(jobs))
    }

    /// True while one more stage could start if it needed little.
    pub fn any_free(&self) -> bool {
        self.running < self.jobs
    }

    /// Takes slots if they are free. A stage that needs more memory or CPUs than there are runs
    /// when nothing else does.
    pub fn take(&mut self, need: &Need) -> Option<Grant> {
        if !self.any_free() || self.free_gpus.len() < need.gpus {
            return None;
        }
        let (memory, cpus) = (need.memory.min(self.memory), need.cpus.min(self.cpus));
        if self.free_memory < memory || self.free_cpus < cpus {
            return None;
        }
        self.running += 1;
        self.free_memory -= memory;
        self.free_cpus -= cpus;
        let gpus = self.free_gpus.split_off(self.free_gpus.len() - need.gpus);
        Some(Grant { gpus, memory, cpus })
    }

    /// Returns what a stage held.
    pub fn give_back(&mut self, grant: Grant) {
        self.running -= 1;
        self.free_memory += grant.memory;
        self.free_cpus += grant.cpus;
        self.free_gpus.extend(grant.gpus);
        // Lowest index last, so that it is taken first.
        self.free_gpus.sort_by(|a, b| b.cmp(a));
    }
}

/// CPUs this process may use.
pub fn machine_cpus() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}

/// Host memory in bytes; unlimited where the system does not tell.
fn machine_memory() -> u64 {
    let kibibytes = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()
    });
    kibibytes.map_or(u64::MAX, |kibibytes| kibibytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn need(gpus: usize, memory: u64, cpus: usize) -> Need {
        Need { gpus, memory, cpus }
    }

    #[test]
    fn gpus_are_handed_out_one_owner_each_lowest_first() {
        let mut slots = Slots::new(8, 2, 100, 8);
        let first = slots.take(&need(1, 0, 1)).unwrap();
        let second = slots.take(&need(1, 0, 1)).unwrap();
        assert_eq!((first.gpus.as_slice(), second.gpus.as_slice()), (&[0][..], &[1][..]));
        assert_eq!(slots.take(&need(1, 0, 1)), None);
        slots.give_back(first);
        assert_eq!(slots.take(&need(1, 0, 1)).unwrap().gpus, [0]);
    }

    #[test]
    fn an_oversized_stage_runs_alone() {
        let mut slots = Slots::new(2, 0, 100, 2);
        let small = slots.take(&need(0, 1, 1)).unwrap();
        assert_eq!(slots.take(&need(0, 1000, 1)), None);
        slots.give_back(small);
        let large = slots.take(&need(0, 1000, 9)).unwrap();
        assert_eq!(slots.take(&need(0, 1, 1)), None);
        slots.give_back(large);
    }

    proptest! {
        #[test]
        fn never_more_than_there_is_and_everything_comes_back(
            needs in prop::collection::vec((0usize..3, 0u64..60, 0usize..4), 1..40)
        ) {
            let mut slots = Slots::new(3, 2, 100, 4);
            let mut held: Vec<Grant> = Vec::new();
            for (gpus, memory, cpus) in needs {
                if let Some(grant) = slots.take(&need(gpus, memory, cpus)) {
                    held.push(grant);
                } else if !held.is_empty() {
                    slots.give_back(held.remove(0));
                }
                prop_assert!(held.len() <= 3);
                prop_assert!(held.iter().map(|g| g.memory).sum::<u64>() <= 100);
                prop_assert!(held.iter().map(|g| g.cpus).sum::<usize>() <= 4);
                let mut gpus: Vec<_> = held.iter().flat_map(|g| g.gpus.clone()).collect();
                gpus.sort();
                gpus.dedup();
                prop_assert_eq!(gpus.len(), held.iter().map(|g| g.gpus.len()).sum::<usize>());
            }
            held.into_iter().for_each(|grant| slots.give_back(grant));
            let all = slots.take(&need(2, 100, 4)).unwrap();
            prop_assert_eq!(all.gpus.len(), 2);
        }
    }
}
