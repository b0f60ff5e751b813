//! The strict mode on any pair: no panic, quick, reflexive and symmetric.
#![no_main]

use std::time::{Duration, Instant};

use grader::strict::equal;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|pair: (&str, &str)| {
    let (a, b) = pair;
    let start = Instant::now();
    let verdict = equal(a, b);
    // 50 ms on a quiet machine; instrumented code and busy machines take several times that.
    assert!(start.elapsed() < Duration::from_secs(1), "slow");
    assert_eq!(verdict.equal, equal(b, a).equal, "not symmetric");
    assert!(equal(a, a).equal, "not reflexive");
    // White space at the ends says nothing.
    assert_eq!(verdict.equal, equal(&format!(" {a} "), b).equal, "white space counts");
});
