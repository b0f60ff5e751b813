//! Pipeline engine.
