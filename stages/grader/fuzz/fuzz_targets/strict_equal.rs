//! The strict mode on any pair: no panic, quick, reflexive and symmetric.
#![no_main]

use grader::strict::equal;
use grader_fuzz::{pair, timed};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((a, b)) = pair(data) else { return };
    let verdict = timed(|| equal(a, b));
    assert_eq!(verdict.equal, timed(|| equal(b, a)).equal, "not symmetric");
    assert!(timed(|| equal(a, a)).equal, "not reflexive");
    // White space at the ends says nothing.
    assert_eq!(verdict.equal, timed(|| equal(&format!(" {a} "), b)).equal, "white space counts");
});
