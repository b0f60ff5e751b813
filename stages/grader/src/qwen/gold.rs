//! The gold answer as Qwen2.5-Math's harness compares it (`parse_ground_truth`).

use super::strip::strip_string;
use crate::extract::{extract_answer, keeps_units, normalised};

/// The gold answer in the form that `math_equal` sees, for the data set `data_name`.
///
/// `gold` is the data set's final answer, its worked solution with a box (MATH), or a GSM8K answer
/// with `####`. Data sets differ in how often they strip: MATH once, most others twice, and two
/// only shorten `\neq`, `\leq` and `\geq`.
pub fn parse_ground_truth(gold: &str, data_name: &str) -> String {
    match data_name {
        "math" | "math500" | "minerva_math" => {
            let answer = if gold.contains('b') && gold.contains("boxed") {
                extract_answer(gold, data_name).answer
            } else {
                normalised(gold, data_name)
            };
            if keeps_units(data_name) { shorten(&answer) } else { answer }
        }
        "carp_en" => shorten(gold),
        "gsm8k" => {
            let answer = gold.rsplit("####").next().unwrap_or(gold);
            twice(answer)
        }
        "gaokao2023en" | "college_math" | "gaokao_math_cloze" => twice(&gold.replace('$', "")),
        "olympiadbench" => twice(gold.trim_matches('$')),
        _ => twice(gold),
    }
}

fn twice(answer: &str) -> String {
    let once = strip_string(answer, false);
    // Where stripping changed nothing, stripping again changes nothing.
    if once == answer { once } else { strip_string(&once, false) }
}

fn shorten(answer: &str) -> String {
    answer.replace("\\neq", "\\ne").replace("\\leq", "\\le").replace("\\geq", "\\ge")
}
