//! Events as JSON lines on standard output, for scripts: the very lines of the run's log.

use super::{Reader, out};
use crate::event::Line;

/// Prints every event.
pub struct Json;

impl Reader for Json {
    fn see(&mut self, line: &Line) {
        if let Ok(text) = serde_json::to_string(line) {
            out(text);
        }
    }
}
