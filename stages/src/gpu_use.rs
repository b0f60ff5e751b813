//! How much of a GPU's memory is in use while a stage runs.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use engine::kind::StageCtx;

use crate::gpu;

/// Time between two looks at the card. What is in use for less may be missed; weights, caches and what
/// training keeps are held for longer.
const EVERY: Duration = Duration::from_millis(50);

/// Looks at the stage's (first) GPU until it is dropped, then tells the most that was in use for the
/// record. All that is in use on the card counts: a stage holds its GPUs alone.
pub struct GpuUse<'a> {
    ctx: &'a StageCtx,
    watch: Option<(Sender<()>, JoinHandle<u64>)>,
}

impl<'a> GpuUse<'a> {
    /// Begins to look; does nothing on a CPU.
    pub fn of(ctx: &'a StageCtx) -> Self {
        let device = ctx.device().to_owned();
        Self { ctx, watch: in_use(&device).is_some().then(|| watch(move || in_use(&device))) }
    }
}

impl Drop for GpuUse<'_> {
    fn drop(&mut self) {
        let Some((stop, thread)) = self.watch.take() else { return };
        drop(stop);
        if let Ok(peak) = thread.join() {
            self.ctx.used_gpu_memory(peak);
        }
    }
}

/// Calls `look` until the sender is dropped; the thread ends with the largest of what it saw.
fn watch(look: impl Fn() -> Option<u64> + Send + 'static) -> (Sender<()>, JoinHandle<u64>) {
    let (stop, stopped) = channel::<()>();
    let thread = std::thread::spawn(move || {
        let mut peak = 0;
        loop {
            peak = peak.max(look().unwrap_or(0));
            if stopped.recv_timeout(EVERY) != Err(RecvTimeoutError::Timeout) {
                return peak.max(look().unwrap_or(0));
            }
        }
    });
    (stop, thread)
}

/// Bytes in use on a GPU; none on a CPU.
fn in_use(device: &str) -> Option<u64> {
    gpu::memory(device).map(|(free, total)| total.saturating_sub(free))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn the_largest_of_what_was_seen_is_told() {
        let looks = AtomicU64::new(0);
        let (stop, thread) =
            watch(move || Some([3, 9, 4][looks.fetch_add(1, Ordering::Relaxed).min(2) as usize]));
        std::thread::sleep(3 * EVERY);
        drop(stop);
        assert_eq!(thread.join().unwrap(), 9);
        assert_eq!(in_use("cpu"), None);
    }
}
