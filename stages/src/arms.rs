//! Arms and claims, as manifests hand them to `aggregate`, `chart` and `report`.

use engine::kind::ParamProblem;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One of the things compared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Arm {
    /// Name in the manifest.
    pub name: String,
    /// Name for people. Left out: the name.
    #[serde(default)]
    pub label: String,
}

impl Arm {
    /// What people read.
    pub fn label(&self) -> &str {
        if self.label.is_empty() { &self.name } else { &self.label }
    }
}

/// The arm of an instance's label: `lora` of `lora,seed=2` and of `math/lora`.
pub fn arm_of(label: &str) -> &str {
    let instance = label.rsplit('/').next().unwrap_or(label);
    instance.split(',').next().unwrap_or(instance).trim()
}

/// The given arms that have results, then arms that have results only, by name.
pub fn in_order<'a>(given: &[Arm], present: impl Iterator<Item = &'a String>) -> Vec<Arm> {
    let present: Vec<&String> = present.collect();
    let mut arms: Vec<Arm> =
        given.iter().filter(|arm| present.iter().any(|name| **name == arm.name)).cloned().collect();
    for name in present {
        if !given.iter().any(|arm| arm.name == *name) {
            arms.push(Arm { name: name.clone(), label: String::new() });
        }
    }
    arms
}

/// What was claimed for one arm on one benchmark.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    /// Accuracy, 0 to 1.
    pub accuracy: Option<f64>,
    /// Difference to the base arm, −1 to 1.
    pub delta: Option<f64>,
}

/// The `[claims]` table of a manifest.
#[derive(Debug, Clone, Copy)]
pub struct Claims<'a>(&'a Value);

impl<'a> Claims<'a> {
    /// Reads a claims table; null means no claims.
    pub fn new(table: &'a Value) -> Self {
        Self(table)
    }

    /// The claim about an arm on a benchmark: a number in percent, or a table with `accuracy`
    /// and `delta`. A missing delta follows from two accuracies.
    pub fn of(&self, arm: &str, benchmark: &str, base: &str) -> Claim {
        let mut claim = self.stated(arm, benchmark);
        let base = self.stated(base, benchmark).accuracy;
        if let (Some(accuracy), Some(base)) = (claim.accuracy, base) {
            claim.delta = claim.delta.or(Some(accuracy - base));
        }
        claim
    }

    fn stated(&self, arm: &str, benchmark: &str) -> Claim {
        let share = |value: &Value| value.as_f64().map(|percent| percent / 100.0);
        match self.0.get(arm).and_then(|row| row.get(benchmark)) {
            Some(Value::Object(table)) => Claim {
                accuracy: table.get("accuracy").and_then(share),
                delta: table.get("delta").and_then(share),
            },
            Some(value) => Claim { accuracy: share(value), delta: None },
            None => Claim::default(),
        }
    }

    /// Tables of claims that belong to no arm, and values that are no numbers.
    pub fn problems(&self, arms: &[Arm]) -> Vec<ParamProblem> {
        let mut problems = Vec::new();
        let mut add = |param: String, message: String, help: &str| {
            problems.push(ParamProblem { param, message, help: help.into() });
        };
        let table = match self.0 {
            Value::Null => return problems,
            Value::Object(table) => table,
            _ => {
                add("claims".into(), "not a table".into(), "write `claims = \"${claims}\"`");
                return problems;
            }
        };
        for (arm, row) in table {
            let Value::Object(row) = row else { continue };
            if !arms.is_empty() && arms.iter().all(|known| known.name != *arm) {
                let names: Vec<&str> = arms.iter().map(|arm| arm.name.as_str()).collect();
                add(
                    format!("claims.{arm}"),
                    format!("claims are made for `{arm}`, which is no arm"),
                    &format!("the arms are {}", names.join(", ")),
                );
            }
            for (benchmark, value) in row {
                let numbers: Vec<&Value> = match value {
                    Value::Object(table) => {
                        table.get("accuracy").into_iter().chain(table.get("delta")).collect()
                    }
                    other => vec![other],
                };
                if numbers.is_empty() || !numbers.iter().all(|n| n.is_number()) {
                    add(
                        format!("claims.{arm}.{benchmark}"),
                        "not a claim".into(),
                        "write an accuracy in percent, or { accuracy = 79.0, delta = 8.6 }",
                    );
                }
            }
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn claims_are_percentages_or_tables() {
        let table = json!({
            "source": "https://example.org/paper",
            "base": {"math500": 50.0},
            "lora": {"math500": 62.5, "amc23": {"delta": 8.0}},
        });
        let claims = Claims::new(&table);
        let lora = claims.of("lora", "math500", "base");
        assert_eq!((lora.accuracy, lora.delta), (Some(0.625), Some(0.125)));
        let amc = claims.of("lora", "amc23", "base");
        assert_eq!((amc.accuracy, amc.delta), (None, Some(0.08)));
        assert_eq!(claims.of("random", "math500", "base"), Claim::default());
        let arm = |name: &str| Arm { name: name.into(), label: String::new() };
        assert!(claims.problems(&[arm("base"), arm("lora")]).is_empty());
        let problems = claims.problems(&[arm("base"), arm("LoRA")]);
        assert_eq!(problems.len(), 1);
        assert_eq!(problems[0].param, "claims.lora");
    }

    #[test]
    fn claims_that_are_no_numbers_are_found() {
        let table = json!({"base": {"math500": "50 %", "amc23": {"accuracy": 3}}});
        let problems = Claims::new(&table).problems(&[]);
        assert_eq!(problems.len(), 1);
        assert_eq!(problems[0].param, "claims.base.math500");
        assert_eq!(Claims::new(&json!(3)).problems(&[])[0].param, "claims");
    }

    #[test]
    fn arms_keep_the_given_order_and_unknown_ones_follow() {
        let given = [("base", "Base"), ("lora", "LoRA"), ("gone", "")]
            .map(|(name, label)| Arm { name: name.into(), label: label.into() });
        let present = ["extra", "lora", "base"].map(String::from);
        let names: Vec<String> = in_order(&given, present.iter()).into_iter().map(|a| a.name).collect();
        assert_eq!(names, ["base", "lora", "extra"]);
        assert_eq!(arm_of("lora,seed=2"), "lora");
        assert_eq!(arm_of("math/lora"), "lora");
    }
}
