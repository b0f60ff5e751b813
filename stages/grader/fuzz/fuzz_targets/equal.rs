//! Both modes on any pair: no panic, quick, and every answer equals itself.
#![no_main]

use grader_fuzz::{pair, timed};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((pred, gold)) = pair(data) else { return };
    for data_name in ["math500", "minerva_math"] {
        timed(|| grader::grade_answer(pred, gold, data_name));
    }
    assert!(timed(|| grader::qwen::equal::math_equal(pred, pred)).equal);
    timed(|| grader::qwen::equal::math_equal(pred, gold));
});
