//! The parser of the strict mode on any text: no panic.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    grader::strict::explain(text);
});
