//! What the fuzz targets share: the clock, and pairs out of bytes.

use std::time::Duration;

/// Longest time one call may take on the processor. Instrumented code with overflow checks is
/// slower than a release build, so this asks for more than it seems.
pub const LIMIT: Duration = Duration::from_millis(50);

/// Runs `f` and panics where it took more than [`LIMIT`] of this thread's processor time. The wall
/// clock would count the waiting on a busy machine.
pub fn timed<T>(f: impl FnOnce() -> T) -> T {
    let start = thread_time();
    let value = f();
    let took = thread_time() - start;
    assert!(took < LIMIT, "slow: {took:?}");
    value
}

/// Two texts: what stands before and after the first line break.
pub fn pair(data: &[u8]) -> Option<(&str, &str)> {
    std::str::from_utf8(data).ok()?.split_once('\n')
}

fn thread_time() -> Duration {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes one `timespec`, to a place that is ours.
    let rc = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut t) };
    assert_eq!(rc, 0, "no clock for the time of a thread");
    Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
}
