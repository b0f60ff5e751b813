//! The engine's side of a worker: start it, listen to it, and end it with everything it started.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::orphans;
use super::stop::{Level, Stop};
use crate::event::WorkerEvent;
use crate::kind::{StageError, Tier};

/// How often deadlines and the stop switch are looked at.
const TICK: Duration = Duration::from_millis(50);
/// A worker beats every 5 s; one that is silent this long is taken for hung.
const SILENCE: Duration = Duration::from_secs(120);
/// How long a worker may take to die once its socket is closed.
const LAST_BREATH: Duration = Duration::from_secs(5);
/// A line longer than this is no event.
const LONGEST_LINE: usize = 16 << 20;

/// How to start a worker.
pub struct Start<'a> {
    /// The program: this one.
    pub program: &'a Path,
    /// The job file.
    pub job: &'a Path,
    /// Working folder.
    pub folder: &'a Path,
    /// Receives standard output and standard error.
    pub log: File,
    /// Value of `CUDA_VISIBLE_DEVICES`, when the stage owns GPUs.
    pub visible_gpus: Option<String>,
}

/// When to end a worker.
pub struct Limits<'a> {
    /// Kill it after this long.
    pub timeout: Option<Duration>,
    /// How long a worker that was asked to stop may take to save its state.
    pub grace: Duration,
    /// The run's switch.
    pub stop: &'a Stop,
    /// Where the stage keeps its resumable state, for telling whether there is any.
    pub state: &'a Path,
}

/// A running worker. Dropping it kills it.
pub struct Worker {
    child: Child,
    socket: UnixStream,
    reaped: bool,
}

/// The program to start workers with: this very binary, also after it was replaced on disk.
pub fn own_program() -> io::Result<PathBuf> {
    if cfg!(target_os = "linux") { Ok(PathBuf::from("/proc/self/exe")) } else { std::env::current_exe() }
}

impl Worker {
    /// Starts a worker.
    pub fn start(start: Start) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_read_timeout(Some(TICK))?;
        let mut command = Command::new(start.program);
        command
            .arg0("pipeline")
            .args(["exec-stage", "--attached"])
            .arg(start.job)
            .current_dir(start.folder)
            .stdin(Stdio::from(std::os::fd::OwnedFd::from(theirs)))
            .stdout(start.log.try_clone()?)
            .stderr(start.log);
        if let Some(gpus) = start.visible_gpus {
            command.env("CUDA_VISIBLE_DEVICES", gpus);
        }
        let child = orphans::spawn(&mut command)?;
        Ok(Self { child, socket: ours, reaped: false })
    }

    /// The worker's process id, also its group once it runs.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Listens until the worker has ended, and says how.
    pub fn wait(mut self, limits: &Limits, mut on_event: impl FnMut(WorkerEvent)) -> Result<(), StageError> {
        let started = Instant::now();
        let mut outcome: Option<Result<(), StageError>> = None;
        let mut ending: Option<(Why, Instant)> = None;
        let mut heard = Instant::now();
        let mut lines = Lines::default();
        loop {
            match lines.read(&mut self.socket) {
                Ok(None) => break,
                Ok(Some(events)) => {
                    heard = Instant::now();
                    for event in events {
                        match event {
                            WorkerEvent::Finished => outcome = Some(Ok(())),
                            WorkerEvent::Failed { error } => outcome = Some(Err(error)),
                            WorkerEvent::Heartbeat => {}
                            other => on_event(other),
                        }
                    }
                }
                Err(error) if is_tick(&error) => {}
                Err(_) => break,
            }
            if ending.is_none() {
                let why = if limits.stop.requested() {
                    Some(Why::Stopped)
                } else if limits.timeout.is_some_and(|limit| started.elapsed() > limit) {
                    Some(Why::TimedOut)
                } else {
                    None
                };
                if let Some(why) = why {
                    self.signal(libc::SIGTERM);
                    ending = Some((why, Instant::now()));
                }
            }
            let overdue = ending.is_some_and(|(_, since)| since.elapsed() > limits.grace);
            if heard.elapsed() > SILENCE && ending.is_none() {
                ending = Some((Why::Silent, Instant::now()));
                self.kill_group();
            } else if overdue || limits.stop.level() == Level::Kill {
                self.kill_group();
            }
        }
        let status = self
            .reap()
            .map_err(|error| StageError::environment(format!("cannot wait for the worker: {error}")))?;
        match (outcome, ending.map(|(why, _)| why)) {
            (Some(Ok(())), _) => Ok(()),
            (_, Some(Why::Stopped)) => Err(StageError::stopped()),
            (_, Some(Why::TimedOut)) => Err(timed_out(limits)),
            (_, Some(Why::Silent)) => Err(StageError::transient(format!(
                "the worker gave no sign of life for {} s and was killed",
                SILENCE.as_secs()
            ))
            .with_help(next_time(limits.state))),
            (Some(Err(error)), None) => Err(error),
            (None, None) => Err(died(status, limits.state)),
        }
    }

    fn signal(&self, signal: i32) {
        // SAFETY: plain system call; the child is not reaped yet, so the id is still its own.
        unsafe { libc::kill(self.child.id() as i32, signal) };
    }

    /// Kills the worker and whatever it started. Before it has its own group there is only itself.
    fn kill_group(&self) {
        let id = self.child.id() as i32;
        // SAFETY: plain system calls; the child is not reaped yet, so id and group are its own.
        unsafe {
            libc::kill(-id, libc::SIGKILL);
            libc::kill(id, libc::SIGKILL);
        }
    }

    /// Waits for the end, kills what is left of the group while its id is still ours, and reaps.
    fn reap(&mut self) -> io::Result<ExitStatus> {
        let since = Instant::now();
        let mut pause = Duration::from_micros(100);
        while !self.has_ended()? {
            if since.elapsed() > LAST_BREATH {
                self.kill_group();
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(TICK);
        }
        self.kill_group();
        self.reaped = true;
        let status = self.child.wait();
        orphans::forget(self.child.id());
        if !status.as_ref().is_ok_and(ExitStatus::success) {
            orphans::end_orphans();
        }
        status
    }

    /// True once the worker is a zombie; does not reap it.
    fn has_ended(&self) -> io::Result<bool> {
        // SAFETY: `info` is plain data that waitid fills in; WNOWAIT leaves the child waitable.
        let (code, pid) = unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
            let code = libc::waitid(libc::P_PID, self.child.id(), &mut info, flags);
            (code, info.si_pid())
        };
        match code {
            0 => Ok(pid != 0),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if !self.reaped {
            self.kill_group();
            let _ = self.child.wait();
            orphans::forget(self.child.id());
            orphans::end_orphans();
        }
    }
}

#[derive(Clone, Copy)]
enum Why {
    Stopped,
    TimedOut,
    Silent,
}

fn is_tick(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted)
}

fn timed_out(limits: &Limits) -> StageError {
    let limit = limits.timeout.unwrap_or_default().as_secs_f64();
    StageError::new(Tier::Limit, format!("ran longer than its timeout of {limit} s"))
        .with_help(format!("raise `timeout` in the manifest; {}", next_time(limits.state)))
}

/// What the next run does with a stage that did not end well.
fn next_time(state: &Path) -> &'static str {
    if is_resumable(state) {
        "the next run carries on from the stage's saved state"
    } else {
        "the stage has saved no state, so the next run starts it anew"
    }
}

/// True if a stage has left something to carry on from.
pub fn is_resumable(state: &Path) -> bool {
    std::fs::read_dir(state).is_ok_and(|mut items| items.next().is_some())
}

/// A worker that a signal from outside has ended may get through the next time.
fn died(status: ExitStatus, state: &Path) -> StageError {
    let lost = |how: &str, cause: &str| {
        StageError::transient(format!("the worker was {how}")).with_help(format!(
            "{cause}{}; with `retries` in the manifest it is tried again at once",
            next_time(state)
        ))
    };
    match status.signal() {
        Some(libc::SIGKILL) => {
            lost("killed (SIGKILL)", "often the system's answer to too little memory (see `dmesg`); ")
        }
        Some(libc::SIGTERM) => lost("terminated (SIGTERM)", ""),
        Some(signal) => StageError::new(Tier::Bug, format!("the worker crashed with signal {signal}")),
        None => StageError::new(Tier::Bug, format!("the worker ended without a result ({status})")),
    }
}

/// Splits what arrives into events; a line that is no event is dropped.
#[derive(Default)]
struct Lines {
    pending: Vec<u8>,
}

impl Lines {
    /// Events that have arrived; none at the end of the stream.
    fn read(&mut self, from: &mut impl Read) -> io::Result<Option<Vec<WorkerEvent>>> {
        let mut chunk = [0; 16 << 10];
        let count = from.read(&mut chunk)?;
        if count == 0 {
            return Ok(None);
        }
        self.pending.extend_from_slice(&chunk[..count]);
        let end = self.pending.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let events = self.pending[..end]
            .split(|byte| *byte == b'\n')
            .filter_map(|line| serde_json::from_slice(line).ok())
            .collect();
        self.pending.drain(..end);
        if self.pending.len() > LONGEST_LINE {
            self.pending.clear();
        }
        Ok(Some(events))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_split_over_reads_arrive_whole_and_rubbish_is_dropped() {
        struct Bytes<'a>(std::slice::Chunks<'a, u8>);
        impl Read for Bytes<'_> {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                let chunk = self.0.next().unwrap_or_default();
                buffer[..chunk.len()].copy_from_slice(chunk);
                Ok(chunk.len())
            }
        }
        let text = b"{\"event\":\"message\",\"text\":\"a\"}\nnot json\n{\"event\":\"metrics\",\"step\":1,\"values\":{\"loss\":null}}\n{\"event\":\"fini";
        let mut source = Bytes(text.chunks(7));
        let (mut lines, mut all) = (Lines::default(), Vec::new());
        while let Some(events) = lines.read(&mut source).unwrap() {
            all.extend(events);
        }
        let [WorkerEvent::Message { text }, WorkerEvent::Metrics { step: 1, values }] = &all[..] else {
            panic!("{all:?}")
        };
        assert_eq!(text, "a");
        assert!(values["loss"].is_nan(), "a loss that is not a number survives");
    }
}
