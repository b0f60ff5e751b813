//! Why a stage failed.

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// Whose fault a failure is; decides retries, the exit code and the advice printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// Wrong input: the manifest, a file's content. Never retried.
    Input,
    /// The machine: no space, no device, no permission. Never retried.
    Environment,
    /// Likely to pass if tried again: a network time-out, a worker that the system has killed.
    /// Retried as the stage's `retries` says.
    Transient,
    /// A limit that the manifest sets: the stage's `timeout`. Never retried.
    Limit,
    /// The stage was asked to stop, and has saved its state if it keeps any.
    Stopped,
    /// Our mistake.
    Bug,
}

/// Why a stage failed, with the next step for the user.
#[derive(Debug, Clone, thiserror::Error, Serialize, Deserialize)]
#[error("{message}")]
pub struct StageError {
    /// Whose fault it is.
    pub tier: Tier,
    /// What happened, naming the file and place.
    pub message: String,
    /// What to do about it.
    pub help: Option<String>,
}

impl StageError {
    /// An error of the given tier.
    pub fn new(tier: Tier, message: impl fmt::Display) -> Self {
        Self { tier, message: message.to_string(), help: None }
    }
    /// Wrong input; but a problem of the machine if the system's error number in the message says so:
    /// errors of libraries that read and write files arrive here as text.
    pub fn input(message: impl fmt::Display) -> Self {
        let error = Self::new(Tier::Input, message);
        match machine_help(&error.message) {
            Some(help) => Self { tier: Tier::Environment, help: Some(help.to_owned()), ..error },
            None => error,
        }
    }
    /// A problem of the machine.
    pub fn environment(message: impl fmt::Display) -> Self {
        Self::new(Tier::Environment, message)
    }
    /// A problem that may pass.
    pub fn transient(message: impl fmt::Display) -> Self {
        Self::new(Tier::Transient, message)
    }
    /// The stage stopped because it was asked to, with its state, if it keeps any, saved.
    pub fn stopped() -> Self {
        Self::new(Tier::Stopped, "stopped on request")
    }
    /// Adds the next step. What to do about a failing machine stays: other advice does not apply.
    pub fn with_help(mut self, help: impl fmt::Display) -> Self {
        if machine_help(&self.message).is_none() || self.help.is_none() {
            self.help = Some(help.to_string());
        }
        self
    }
    /// An I/O error on a path.
    pub fn io(path: &Path, error: std::io::Error) -> Self {
        let error = Self::environment(format!("{}: {error}", path.display()));
        let help = machine_help(&error.message).map(str::to_owned);
        Self { help, ..error }
    }
}

/// What to do about an error of the system that no input causes, told by its number as
/// [`std::io::Error`] prints it: `(os error 28)`.
fn machine_help(message: &str) -> Option<&'static str> {
    const SPACE: &str = "free some space (`pipeline cache gc` removes old results) and run again";
    let helps = [
        (libc::ENOSPC, SPACE),
        (libc::EDQUOT, SPACE),
        (libc::EROFS, "use a folder that you may write: --cache for results, TMPDIR for temporary files"),
        (libc::EIO, "the disk or its connection fails: see the system's log"),
        (libc::EMFILE, "allow more open files (`ulimit -n`), or run fewer stages side by side (--jobs)"),
        (libc::ENFILE, "the whole machine has too many open files: end other programs"),
    ];
    let number = |number: i32| message.contains(&format!("(os error {number})"));
    helps.into_iter().find(|(code, _)| number(*code)).map(|(_, help)| help)
}

#[cfg(test)]
mod tests {
    use std::io::Error;

    use super::*;

    #[test]
    fn what_the_system_fails_at_is_no_wrong_input() {
        let path = Path::new("out/model.safetensors");
        let machine = [libc::ENOSPC, libc::EDQUOT, libc::EROFS, libc::EIO, libc::EMFILE, libc::ENFILE];
        for code in machine {
            let text = format!("{}: {}", path.display(), Error::from_raw_os_error(code));
            // As a library's error, with its caller's advice, and as one of ours.
            let told = StageError::input(&text).with_help("correct the path");
            assert_eq!((told.tier, &told.message), (Tier::Environment, &text));
            let ours = StageError::io(path, Error::from_raw_os_error(code));
            assert_eq!((ours.tier, &ours.message), (Tier::Environment, &text));
            assert!(told.help.is_some() && told.help == ours.help, "{told:?}");
            assert_ne!(told.help.as_deref(), Some("correct the path"));
        }
        for code in [libc::ENOENT, libc::EISDIR, libc::ENOTDIR, 2 * libc::ENOSPC + 1000] {
            let told = StageError::input(Error::from_raw_os_error(code)).with_help("correct the path");
            assert_eq!((told.tier, told.help.as_deref()), (Tier::Input, Some("correct the path")));
        }
    }
}
