//! How a run is asked to stop: once to finish politely, twice to kill.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// What has been asked of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Nothing: carry on.
    Run,
    /// Start nothing more; ask workers to save their state and end.
    Finish,
    /// Kill workers now.
    Kill,
}

/// A switch shared by the engine's threads. Cloneable; all clones are one switch.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicU8>);

impl Stop {
    /// Asks one level more.
    pub fn request(&self) {
        let _ =
            self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |level| (level < 3).then_some(level + 1));
    }

    /// What has been asked so far.
    pub fn level(&self) -> Level {
        match self.0.load(Ordering::SeqCst) {
            0 => Level::Run,
            1 => Level::Finish,
            _ => Level::Kill,
        }
    }

    /// True once anything has been asked.
    pub fn requested(&self) -> bool {
        self.level() > Level::Run
    }

    /// Lets SIGINT, SIGTERM and SIGHUP of this process flip the switch. A third signal ends the
    /// process at once; its workers notice and die with it.
    pub fn on_signals(&self) -> io::Result<()> {
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
        let stop = self.clone();
        std::thread::spawn(move || {
            for _ in signals.forever() {
                if stop.level() == Level::Kill {
                    std::process::exit(130);
                }
                stop.request();
            }
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_goes_one_level_up_and_no_further() {
        let stop = Stop::default();
        let levels: Vec<_> = (0..5)
            .map(|_| {
                let level = stop.level();
                stop.clone().request();
                level
            })
            .collect();
        use Level::*;
        assert_eq!(levels, [Run, Finish, Kill, Kill, Kill]);
    }
}
