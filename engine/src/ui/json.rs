//! Events as JSON lines on standard output, for scripts: the lines of the run's log, and progress.

use std::io::Write;

use super::Reader;
use crate::event::Line;

/// Prints every event, until nobody reads any more.
#[derive(Default)]
pub struct Json {
    unread: bool,
}

impl Reader for Json {
    fn see(&mut self, line: &Line) {
        if self.unread {
            return;
        }
        if let Ok(text) = serde_json::to_string(line) {
            // The run goes on without its reader.
            self.unread = writeln!(std::io::stdout(), "{text}").is_err();
        }
    }
}
