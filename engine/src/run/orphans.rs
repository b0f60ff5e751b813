//! Programs that outlive the process that started them.
//!
//! A signal to a worker's process group misses programs that have left it (`setsid`, daemons).
//! Engine and worker therefore adopt orphans (Linux: they are child subreapers): a program whose
//! parent ends becomes their child. A worker ends every child it has before it exits itself; the
//! engine ends those of a worker that was killed.
//!
//! Out of reach: a program in a group of its own when engine and worker are killed by SIGKILL at
//! the same moment, and all such programs on systems other than Linux.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::process::{Child, Command};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long killed programs may take to go.
const LIMIT: Duration = Duration::from_secs(5);

/// Children that the engine has started and not yet waited for; `None` while this process does not
/// adopt orphans, and then never ends any.
static WORKERS: Mutex<Option<HashSet<u32>>> = Mutex::new(None);

fn workers() -> MutexGuard<'static, Option<HashSet<u32>>> {
    WORKERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes this process the parent of orphans among its descendants. For a whole program, not a
/// library: [`end_orphans`] then kills children that nobody has [`spawn`]ed here. Children that it has
/// already, as after `server & exec pipeline …` in a shell, are left alone.
pub fn adopt() {
    become_subreaper();
    workers().get_or_insert_with(|| children().into_iter().collect());
}

/// Starts a child that is no orphan.
pub(super) fn spawn(command: &mut Command) -> io::Result<Child> {
    // Held meanwhile, so that no sweep sees the child before it is listed.
    let mut workers = workers();
    let child = command.spawn()?;
    if let Some(workers) = workers.as_mut() {
        workers.insert(child.id());
    }
    Ok(child)
}

/// Takes note that a child has been waited for.
pub(super) fn forget(child: u32) {
    if let Some(workers) = workers().as_mut() {
        workers.remove(&child);
    }
}

/// Kills what dead workers have left, if this process adopts orphans.
pub(super) fn end_orphans() {
    if let Some(workers) = workers().as_ref() {
        end(|child| !workers.contains(&child));
    }
}

/// Makes the calling worker adopt orphans; it ends them by [`end_children`].
pub(super) fn become_subreaper() {
    #[cfg(target_os = "linux")]
    // SAFETY: sets a flag of this process.
    unsafe {
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1)
    };
}

/// Kills every child of this process, and what becomes its child by that.
pub(super) fn end_children() {
    end(|_| true);
}

fn end(condemned: impl Fn(u32) -> bool) {
    let since = Instant::now();
    let mut pause = Duration::from_micros(200);
    loop {
        let children: Vec<u32> = children().into_iter().filter(|child| condemned(*child)).collect();
        if children.is_empty() || since.elapsed() > LIMIT {
            return;
        }
        for child in children {
            // SAFETY: plain system calls on a child of ours that has not been waited for: its id is
            // still its own.
            unsafe {
                libc::kill(child as i32, libc::SIGKILL);
                libc::waitpid(child as i32, std::ptr::null_mut(), libc::WNOHANG);
            }
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

/// The children of this process; none where `/proc` does not tell.
fn children() -> Vec<u32> {
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_whitespace().filter_map(|id| id.parse().ok()).collect::<Vec<_>>())
        .collect()
}
