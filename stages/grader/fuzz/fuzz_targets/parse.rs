//! The parsers of the Qwen rules on any text: no panic, and quick.
#![no_main]

use std::time::{Duration, Instant};

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let start = Instant::now();
    grader::qwen::sym::parser_of(text);
    grader::qwen::strip::strip_string(text, false);
    // A sanitizer build is slow; 50 ms in a release build are about this much here.
    assert!(start.elapsed() < Duration::from_secs(1), "slow");
});
