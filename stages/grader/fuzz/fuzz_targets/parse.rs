//! The parsers of the Qwen rules on any text: no panic, and quick.
#![no_main]

use grader_fuzz::timed;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    timed(|| grader::qwen::sym::parser_of(text));
    for keep_units in [false, true] {
        timed(|| grader::qwen::strip::strip_string(text, keep_units));
    }
});
