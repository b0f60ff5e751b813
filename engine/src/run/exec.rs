//! The worker: `pipeline exec-stage JOB.json` runs one stage and ends.
//!
//! Started by the engine, its standard input is a socket: events go out on it, and its end means
//! that the engine is gone. The worker then kills its children and its whole process group, so that
//! no program a stage has started outlives the engine; [`super::orphans`] has the details. Started
//! by hand, events go to standard output.

use std::any::Any;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};

use super::job::Job;
use super::orphans;
use crate::event::{WorkerEvent, WorkerEvents};
use crate::kind::{Registry, StageCtx, StageError, Tier};

/// How often a worker says that it lives.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// Runs the job. `attached`: started by the engine, with the event socket as standard input.
pub fn main(job: &Path, attached: bool, registry: &Registry) -> ExitCode {
    let stop: Arc<AtomicBool> = Arc::default();
    let events = match connect(attached, &stop) {
        Ok(events) => events,
        Err(error) => {
            let _ = writeln!(io::stderr(), "worker cannot start: {error}");
            return ExitCode::from(3);
        }
    };
    let heart = events.clone();
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(HEARTBEAT);
            heart.send(WorkerEvent::Heartbeat);
        }
    });
    let result = run(job, registry, &events, &stop);
    // Before the result is told: nothing may touch the output any more.
    orphans::end_children();
    match result {
        Ok(()) => {
            events.send(WorkerEvent::Used { peak_memory: super::machine::peak_memory() });
            events.send(WorkerEvent::Finished);
            ExitCode::SUCCESS
        }
        Err(error) => {
            // The log may lie on a full disk: the engine has to learn of the error all the same.
            let _ = writeln!(io::stderr(), "{error}");
            events.send(WorkerEvent::Failed { error });
            ExitCode::FAILURE
        }
    }
}

fn run(
    job: &Path,
    registry: &Registry,
    events: &WorkerEvents,
    stop: &Arc<AtomicBool>,
) -> Result<(), StageError> {
    let job = Job::read(job).map_err(|error| StageError::io(job, error))?;
    let kind = registry.get(&job.kind).filter(|kind| kind.version == job.version).ok_or_else(|| {
        StageError::new(
            Tier::Bug,
            format!("this worker does not know kind {} version {}", job.kind, job.version),
        )
    })?;
    let stage = (kind.parse_json)(job.params)
        .map_err(|error| StageError::new(Tier::Bug, format!("params do not survive JSON: {error}")))?;
    let ctx = StageCtx {
        out: job.out,
        state: job.state,
        inputs: job.inputs,
        device: job.device,
        access: job.access,
        pins: job.pins,
        events: events.clone(),
        stop: Arc::clone(stop),
    };
    let place: Arc<Mutex<Option<String>>> = Arc::default();
    let seen = Arc::clone(&place);
    let default_hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if let (Some(at), Ok(mut place)) = (info.location(), seen.lock()) {
            *place = Some(format!("{}:{}", at.file(), at.line()));
        }
        default_hook(info);
    }));
    catch_unwind(AssertUnwindSafe(|| stage.run(&ctx))).unwrap_or_else(|panic| {
        let place = place.lock().ok().and_then(|mut place| place.take());
        // What `println!` does when the log cannot be written: no fault of the kind's.
        if let Some(why) = panic_text(&*panic).strip_prefix("failed printing to ") {
            return Err(StageError::environment(format!("the stage's log cannot be written: {why}"))
                .with_help("is there room where the cache is? `pipeline cache gc` removes old results"));
        }
        Err(StageError::new(
            Tier::Bug,
            format!("panicked at {}: {}", place.unwrap_or_default(), panic_text(&*panic)),
        )
        .with_help("this is a bug in the stage kind; its log has the details"))
    })
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (_, Some(text)) => text,
        _ => "(no message)",
    }
}

/// Sets up signals and, when started by the engine, the event socket and the watch on it.
fn connect(attached: bool, stop: &Arc<AtomicBool>) -> io::Result<WorkerEvents> {
    orphans::become_subreaper();
    signal_hook::flag::register(SIGTERM, Arc::clone(stop))?;
    if !attached {
        signal_hook::flag::register(SIGINT, Arc::clone(stop))?;
        let stdout = io::stdout().as_fd().try_clone_to_owned()?;
        return Ok(WorkerEvents::to_pipe(File::from(stdout)));
    }
    // A session of its own: the terminal's Ctrl-C reaches the engine only, and the group can be
    // killed as a whole.
    // SAFETY: setsid takes no arguments; failure (already a leader) leaves us leader of our group.
    unsafe { libc::setsid() };
    let socket = take_stdin()?;
    let mut watch = socket.try_clone()?;
    std::thread::spawn(move || {
        let mut byte = [0];
        // The engine never writes: whatever ends this read means that it is gone.
        while let Err(error) = watch.read(&mut byte) {
            if error.kind() != io::ErrorKind::Interrupted {
                break;
            }
        }
        orphans::end_children();
        kill_own_group();
    });
    Ok(WorkerEvents::to_pipe(socket))
}

fn kill_own_group() {
    // SAFETY: plain system call; 0 means the caller's own process group.
    unsafe { libc::kill(0, libc::SIGKILL) };
}

/// Moves the socket away from descriptor 0 (close-on-exec, so that programs a stage starts do not
/// hold it) and leaves an empty standard input.
fn take_stdin() -> io::Result<File> {
    let socket = io::stdin().as_fd().try_clone_to_owned()?;
    let null = File::open("/dev/null")?;
    // SAFETY: descriptor 0 is open and std never closes it; dup2 replaces it atomically.
    if unsafe { libc::dup2(null.as_raw_fd(), 0) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(File::from(socket))
}

/// Keeps a program that a stage starts from outliving its worker (Linux): the kernel kills it
/// when the thread that started it ends. The programs that it starts in turn end as
/// [`super::orphans`] says.
pub fn tie_to_worker(command: &mut std::process::Command) {
    #[cfg(target_os = "linux")]
    // SAFETY: between fork and exec only prctl is called, which is async-signal-safe.
    unsafe {
        use std::os::unix::process::CommandExt;
        command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        });
    }
    #[cfg(not(target_os = "linux"))]
    let _ = command;
}
