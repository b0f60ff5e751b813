//! The `pipeline` binary.

fn main() {}
