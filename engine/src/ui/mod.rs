//! The console: the only code of the engine that prints.
//!
//! - [`Reader`]: what reads a run's events. [`lines`] prints plain lines, [`bars`] adds progress
//!   bars on a terminal, [`json`] prints the events as they are.
//! - [`text`]: times, sizes, colours; [`table`]: aligned columns.

pub mod bars;
pub mod json;
pub mod lines;
pub mod table;
pub mod text;

use std::io::IsTerminal;

use crate::event::Line;

/// Reads a run's events and shows them.
pub trait Reader {
    /// Shows one event.
    fn see(&mut self, line: &Line);
}

/// The reader that fits: JSON lines on standard output if asked for, else progress bars on a
/// terminal, else plain lines; both of these on standard error.
pub fn reader(json: bool) -> Box<dyn Reader> {
    if json {
        Box::new(json::Json)
    } else if std::io::stderr().is_terminal() {
        Box::new(bars::Bars::new())
    } else {
        Box::new(lines::Lines::new())
    }
}

/// Prints a line to standard output. Ends the process quietly if nobody reads it any more, as
/// when piped into `head`.
pub fn out(text: impl std::fmt::Display) {
    use std::io::Write;
    if let Err(error) = writeln!(std::io::stdout(), "{text}")
        && error.kind() == std::io::ErrorKind::BrokenPipe
    {
        std::process::exit(0);
    }
}

/// Prints a line to standard error.
pub fn note(text: impl std::fmt::Display) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "{text}");
}
