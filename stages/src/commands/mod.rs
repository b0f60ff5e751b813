//! Commands of the binary that need a library of `stages`, beside those of the engine.

pub mod grade;
