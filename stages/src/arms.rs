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
    /// An arm without a label of its own.
    pub fn named(name: &str) -> Self {
        Self { name: name.to_owned(), label: String::new() }
    }

    /// What people read.
    pub fn label(&self) -> &str {
        if self.label.is_empty() { &self.name } else { &self.label }
    }
}

/// The axis of repetitions: results that differ in it only are combined.
const REPEATS: &str = "seed";
/// The axis that results name themselves.
const BENCHMARK: &str = "benchmark";

/// The arm of an instance's label: `lora` of `lora,seed=2` and of `math/lora`.
pub fn arm_of(label: &str) -> &str {
    let instance = label.rsplit('/').next().unwrap_or(label);
    instance.split(',').next().unwrap_or(instance).trim()
}

/// The axes of an instance's label: `["step=10", "seed=2"]` of `math/lora,step=10,seed=2`.
pub fn axes_of(label: &str) -> Vec<&str> {
    let instance = label.rsplit('/').next().unwrap_or(label);
    instance.split(',').skip(1).map(str::trim).collect()
}

fn without(label: &str, dropped: &[&str]) -> String {
    let axes = axes_of(label);
    let kept = axes.iter().filter(|axis| !dropped.contains(&axis.split('=').next().unwrap_or(axis)));
    kept.fold(arm_of(label).to_owned(), |name, axis| format!("{name},{axis}"))
}

/// The row of the table that an instance belongs to: its arm with every axis but seeds and
/// benchmarks, `lora,step=10` of `math/lora,benchmark=math,step=10,seed=2`.
pub fn row_of(label: &str) -> String {
    without(label, &[REPEATS, BENCHMARK])
}

/// One of the runs that make up a row, on any benchmark: `lora,step=10,seed=2`.
pub fn run_of(label: &str) -> String {
    without(label, &[BENCHMARK])
}

/// Which of `names` (rows or runs) a row or run is compared with: that of the base arm which agrees
/// with it in all its axes, and in most; a run of no such seed is compared with its row's.
pub fn base_of<'a>(name: &str, names: impl Iterator<Item = &'a str> + Clone, base: &str) -> Option<&'a str> {
    let fits = |axes: &[&str]| {
        let fitting = names.clone().filter(|other| arm_of(other) == base);
        fitting
            .filter(|other| axes_of(other).iter().all(|axis| axes.contains(axis)))
            .max_by_key(|other| axes_of(other).len())
    };
    let row = row_of(name);
    let of_row = || {
        let mut same = names.clone().filter(|other| arm_of(other) == base);
        same.find(|other| axes_of(&row_of(other)).iter().all(|axis| axes_of(&row).contains(axis)))
    };
    fits(&axes_of(name)).or_else(of_row)
}

/// What people read of rows, runs or instances that stand together: `LoRA · step 10 · seed 2`. An axis
/// in which all of them agree tells none from another, and is left out.
pub struct Names<'a> {
    arms: &'a [Arm],
    shared: Vec<String>,
}

impl<'a> Names<'a> {
    /// Names for these labels, given what the arms are called.
    pub fn of<T: AsRef<str>>(labels: impl IntoIterator<Item = T>, arms: &'a [Arm]) -> Self {
        let axes = |label: T| axes_of(label.as_ref()).into_iter().map(str::to_owned).collect::<Vec<_>>();
        let mut labels = labels.into_iter().map(axes);
        let mut shared = labels.next().unwrap_or_default();
        labels.for_each(|axes| shared.retain(|axis| axes.contains(axis)));
        Self { arms, shared }
    }

    /// The name of a label.
    pub fn show(&self, label: &str) -> String {
        let arm = arm_of(label);
        let name = self.arms.iter().find(|known| known.name == arm).map_or(arm, Arm::label);
        let own = axes_of(label).into_iter().filter(|axis| !self.shared.iter().any(|shared| shared == axis));
        own.fold(name.to_owned(), |text, axis| format!("{text} · {}", axis.replace('=', " ")))
    }
}

/// Sorts labels as people expect: by the place of their arm among `arms`, then by their axes, numbers
/// by value.
pub fn sort<T: AsRef<str>>(labels: &mut [T], arms: &[Arm]) {
    labels.sort_by_cached_key(|label| order(label.as_ref(), arms));
}

/// Place of the arm, the arm, and each axis with its value as a number where it is one.
type Order = (usize, String, Vec<(String, u64, String)>);

fn order(label: &str, arms: &[Arm]) -> Order {
    let arm = arm_of(label);
    let place = arms.iter().position(|known| known.name == arm).unwrap_or(arms.len());
    let axis = |axis: &&str| {
        let (name, value) = axis.split_once('=').unwrap_or((axis, ""));
        let number = value.parse::<f64>().map_or(u64::MAX, |number| number.max(0.0).to_bits());
        (name.to_owned(), number, value.to_owned())
    };
    (place, arm.to_owned(), axes_of(label).iter().map(axis).collect())
}

/// The rows that have results: in the order of the given arms, then others by name.
pub fn in_order<'a>(given: &[Arm], present: impl Iterator<Item = &'a String>) -> Vec<Arm> {
    let mut rows: Vec<&String> = present.collect();
    sort(&mut rows, given);
    let names = Names::of(&rows, given);
    rows.into_iter().map(|row| Arm { name: row.clone(), label: names.show(row) }).collect()
}

/// What was claimed for one arm on one benchmark.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    /// Accuracy, 0 to 1.
    pub accuracy: Option<f64>,
    /// Difference to the base arm, −1 to 1.
    pub delta: Option<f64>,
    /// Whether it is above or below the base arm, where only that is claimed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direction: Option<Direction>,
}

/// On which side of the base arm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Above.
    Up,
    /// Below.
    Down,
}

/// The `[claims]` table of a manifest.
#[derive(Debug, Clone, Copy)]
pub struct Claims<'a>(&'a Value);

impl<'a> Claims<'a> {
    /// Reads a claims table; null means no claims.
    pub fn new(table: &'a Value) -> Self {
        Self(table)
    }

    /// The claim about a row on a benchmark: a number in percent, or a table with `accuracy`,
    /// `delta` or `direction` (`up`, `down`). A missing delta follows from two accuracies.
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
                direction: table.get("direction").and_then(direction),
            },
            Some(value) => Claim { accuracy: share(value), ..Claim::default() },
            None => Claim::default(),
        }
    }

    /// Row and benchmark of each claim.
    pub fn about(&self) -> Vec<(&'a str, &'a str)> {
        let rows = self.0.as_object().into_iter().flatten();
        rows.flat_map(|(arm, row)| {
            let benchmarks = row.as_object().into_iter().flatten();
            benchmarks.map(move |(benchmark, _)| (arm.as_str(), benchmark.as_str()))
        })
        .collect()
    }

    /// Tables of claims that belong to no arm, values that are no numbers, and numbers that no accuracy,
    /// difference or probability can be.
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
            if !arms.is_empty() && arms.iter().all(|known| known.name != arm_of(arm)) {
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
                for (what, low, high) in [("accuracy", 0.0, 100.0), ("delta", -100.0, 100.0), ("p", 0.0, 1.0)]
                {
                    let stated = value.get(what).or(Some(value).filter(|_| what == "accuracy"));
                    if let Some(number) = stated.and_then(Value::as_f64).filter(|n| !(low..=high).contains(n))
                    {
                        add(
                            format!("claims.{arm}.{benchmark}"),
                            format!("{what} {number} is not between {low} and {high}"),
                            "accuracies are in percent, differences in percentage points, p is a share of 1",
                        );
                    }
                }
                let side = value.get("direction");
                let none = numbers.is_empty() && side.is_none();
                let right =
                    numbers.iter().all(|n| n.is_number()) && side.is_none_or(|v| direction(v).is_some());
                if none || !right {
                    add(
                        format!("claims.{arm}.{benchmark}"),
                        "not a claim".into(),
                        "write an accuracy in percent, { accuracy = 79.0, delta = 8.6 } or { direction = \"up\" }",
                    );
                }
            }
        }
        problems
    }
}

fn direction(value: &Value) -> Option<Direction> {
    Direction::deserialize(value).ok()
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
        let table = json!({
            "base": {"math500": "50 %", "amc23": {"accuracy": 3}},
            "lora": {"amc23": {"direction": "up"}, "math500": {"direction": "better"}},
        });
        let params: Vec<String> = Claims::new(&table).problems(&[]).into_iter().map(|p| p.param).collect();
        assert_eq!(params, ["claims.base.math500", "claims.lora.math500"]);
        assert_eq!(Claims::new(&table).of("lora", "amc23", "base").direction, Some(Direction::Up));
        assert_eq!(Claims::new(&json!(3)).problems(&[])[0].param, "claims");
    }

    #[test]
    fn claims_beyond_all_numbers_are_refused() {
        let of = |claim: Value| Claims::new(&json!({"a": {"b": claim}})).problems(&[]);
        for beyond in [
            json!(500),
            json!(-1),
            json!({"accuracy": 100.5}),
            json!({"delta": -101}),
            json!({"delta": 1, "p": 1.5}),
        ] {
            let found = of(beyond.clone());
            assert_eq!(found.len(), 1, "{beyond}: {found:?}");
            assert!(
                found[0].param == "claims.a.b" && found[0].message.contains("is not between"),
                "{found:?}"
            );
        }
        for fine in [json!(0), json!(100), json!({"accuracy": 62.5, "delta": -100, "p": 0.03})] {
            assert_eq!(of(fine), []);
        }
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

    #[test]
    fn seeds_are_combined_and_other_axes_make_rows() {
        let label = "math/lora,benchmark=math,step=10,seed=2";
        assert_eq!((row_of(label).as_str(), run_of(label).as_str()), ("lora,step=10", "lora,step=10,seed=2"));
        let arms = [Arm { name: "lora".into(), label: "LoRA".into() }];
        let names = Names::of(["lora,step=10,lr=2e-5", "base,step=20,lr=2e-5"], &arms);
        assert_eq!(
            ["lora,step=10,lr=2e-5", "base,step=20"].map(|label| names.show(label)),
            ["LoRA · step 10", "base · step 20"]
        );
        assert_eq!(Names::of(["lora", "lora,lr=2e-5"], &arms).show("lora,lr=2e-5"), "LoRA · lr 2e-5");
        let present = ["lora,step=100", "base", "lora,step=20", "lora"].map(String::from);
        let rows: Vec<String> = in_order(&arms, present.iter()).into_iter().map(|row| row.name).collect();
        assert_eq!(rows, ["lora", "lora,step=20", "lora,step=100", "base"]);
    }

    #[test]
    fn a_row_is_compared_with_the_base_that_agrees_most() {
        let names = ["base", "base,model=a", "base,model=a,seed=1", "base,model=b,seed=2", "lora,model=a"];
        let of = |name| base_of(name, names.into_iter(), "base");
        assert_eq!(of("lora,model=a,step=10"), Some("base,model=a"));
        assert_eq!(of("lora,model=a,seed=1"), Some("base,model=a,seed=1"));
        assert_eq!(of("lora,model=c"), Some("base"));
        let seeded = ["base,seed=1", "base,seed=2"];
        let of = |name| base_of(name, seeded.into_iter(), "base");
        assert_eq!((of("lora,seed=2"), of("lora,seed=9")), (Some("base,seed=2"), Some("base,seed=1")));
        assert_eq!(base_of("lora", ["base,model=a"].into_iter(), "base"), None);
    }
}
