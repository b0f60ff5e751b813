//! The parser of the strict mode on any text: no panic, and quick.
#![no_main]

use grader_fuzz::timed;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    timed(|| grader::strict::explain(text));
});
