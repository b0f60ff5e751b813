//! How times and colours look.

use std::fmt::{self, Display};

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// Seconds for people: `0.42 s`, `12 s`, `3 min 20 s`, `2 h 5 min`.
pub fn seconds(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    match seconds {
        s if s < 10.0 => format!("{s:.2} s"),
        s if s < 120.0 => format!("{whole} s"),
        s if s < 7200.0 => format!("{} min {} s", whole / 60, whole % 60),
        _ => format!("{} h {} min", whole / 3600, whole % 3600 / 60),
    }
}

/// A time of day on this machine.
pub fn local_time(time: Timestamp) -> String {
    time.to_zoned(TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S").to_string()
}

/// `1 stage`, `2 stages`.
pub fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// Colours of states, when the output is a terminal that wants them.
#[derive(Debug, Clone, Copy)]
pub struct Paint {
    enabled: bool,
}

impl Paint {
    /// Colours if `terminal` and neither `NO_COLOR` nor a dumb terminal forbids them.
    pub fn new(terminal: bool) -> Self {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
            || std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self { enabled: terminal && !refused }
    }

    /// Never colours.
    pub fn plain() -> Self {
        Self { enabled: false }
    }

    fn wrap(self, code: &str, text: impl Display) -> String {
        if self.enabled { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_string() }
    }
    /// Went well.
    pub fn good(self, text: impl Display) -> String {
        self.wrap("1;32", text)
    }
    /// Went wrong.
    pub fn bad(self, text: impl Display) -> String {
        self.wrap("1;31", text)
    }
    /// Wants attention.
    pub fn warn(self, text: impl Display) -> String {
        self.wrap("1;33", text)
    }
    /// Under way.
    pub fn busy(self, text: impl Display) -> String {
        self.wrap("1;36", text)
    }
    /// Less important.
    pub fn dim(self, text: impl Display) -> String {
        self.wrap("2", text)
    }
}

/// A path relative to the current folder where that is shorter.
pub fn short_path(path: &std::path::Path) -> impl fmt::Display {
    let here = std::env::current_dir().ok().and_then(|here| here.canonicalize().ok());
    let relative = here.and_then(|here| path.strip_prefix(here).ok().map(|path| path.to_owned()));
    relative.unwrap_or_else(|| path.to_owned()).display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_grow_into_minutes_and_hours() {
        let shown = [0.423, 9.99, 61.0, 130.4, 7500.0].map(seconds);
        assert_eq!(shown, ["0.42 s", "9.99 s", "61 s", "2 min 10 s", "2 h 5 min"]);
    }

    #[test]
    fn one_is_singular() {
        assert_eq!([0, 1, 2].map(|n| counted(n, "stage")), ["0 stages", "1 stage", "2 stages"]);
    }
}
