//! Extraction from any text: no panic, quick, and the span is a piece of the text.
#![no_main]

use grader_fuzz::timed;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    for data_name in ["math", "minerva_math", "mmlu_stem", "gsm8k"] {
        let found = timed(|| grader::extract_answer(text, data_name));
        if let Some((start, end)) = found.span {
            assert!(text.get(start..end).is_some());
        }
    }
    if let Some(found) = timed(|| grader::extract_gsm8k(text)) {
        let (start, end) = found.span.unwrap_or_default();
        assert_eq!(&text[start..end], found.raw);
    }
    if let Some((_, (start, end))) = timed(|| grader::audit::loose_answer(text)) {
        assert!(text.get(start..end).is_some());
    }
});
