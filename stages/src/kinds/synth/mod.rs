//! `synth`: seeded arithmetic word problems with worked solutions.
//!
//! [`families`] is the table of problem families by level; [`generate`] draws problems from it.

mod families;
mod generate;

use std::fs::File;
use std::io::{BufWriter, Write};

use engine::kind::{ParamProblem, Stage, StageCtx, StageError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use generate::{Generator, Split};

/// Makes arithmetic word problems with step-by-step solutions and boxed answers.
///
/// Writes `train.jsonl` and `test.jsonl`, one problem a line with the fields `problem`,
/// `solution`, `answer`, `level` and `subject`. Train and test never share a problem, not even
/// with other names or objects: whether a family of problems with certain numbers belongs to
/// train or test is decided before anything is drawn.
///
/// Levels: 1 one addition or subtraction; 2 two of them; 3 a multiplication and a second step;
/// 4 three steps, with comparison or sharing; 5 four or five steps with larger numbers.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Synth {
    /// Seed of everything drawn.
    pub seed: u64,
    /// Number of training problems.
    pub train: u32,
    /// Number of held-out problems.
    pub test: u32,
    /// Levels to draw from, 1 (easiest) to 5.
    pub levels: Vec<u8>,
    /// Share of each level, in the order of `levels`; any scale. Empty means equal shares.
    pub weights: Vec<f64>,
    /// Largest number in problems of levels 1 and 2.
    pub largest: u32,
    /// Share of training solutions that state the answer without working, from 0 to 1.
    ///
    /// Real training text is of mixed quality. A model trained on a mixture often guesses although
    /// it could work the answer out: the room that reinforcement learning has for improvement.
    /// Worked solutions begin with "To", the others with "I guess". Held-out solutions are always
    /// worked.
    pub direct: f64,
}

impl Default for Synth {
    fn default() -> Self {
        Self {
            seed: 0,
            train: 4000,
            test: 200,
            levels: vec![1, 2],
            weights: Vec::new(),
            largest: 20,
            direct: 0.0,
        }
    }
}

impl Synth {
    /// How many of `total` problems each level gets: largest remainders, so that the shares are
    /// exact to one problem.
    fn quotas(&self, total: u32) -> Vec<u32> {
        let weights = match self.weights.len() {
            0 => vec![1.0; self.levels.len()],
            _ => self.weights.clone(),
        };
        let sum: f64 = weights.iter().sum();
        let exact: Vec<f64> = weights.iter().map(|w| w / sum * f64::from(total)).collect();
        let mut quotas: Vec<u32> = exact.iter().map(|x| x.floor() as u32).collect();
        let mut order: Vec<usize> = (0..exact.len()).collect();
        order.sort_by(|&a, &b| exact[b].fract().total_cmp(&exact[a].fract()).then(a.cmp(&b)));
        let missing = total - quotas.iter().sum::<u32>();
        for &level in order.iter().take(missing as usize) {
            quotas[level] += 1;
        }
        quotas
    }

    fn write_split(&self, ctx: &StageCtx, split: Split, total: u32) -> Result<(), StageError> {
        let path = ctx.out().join(split.file_name());
        let mut file = BufWriter::new(File::create(&path).map_err(|e| StageError::io(&path, e))?);
        let mut generator = Generator::new(self.seed, split, self.largest, self.direct);
        for level in generator.shuffled_levels(&self.levels, &self.quotas(total)) {
            let problem = generator.draw(level).ok_or_else(|| {
                StageError::input(format!(
                    "synth: ran out of distinct level-{level} problems for {}",
                    split.file_name()
                ))
                .with_help("raise `largest`, or ask for fewer problems")
            })?;
            let line = serde_json::to_string(&problem).map_err(std::io::Error::from);
            line.and_then(|line| writeln!(file, "{line}")).map_err(|e| StageError::io(&path, e))?;
        }
        file.flush().map_err(|e| StageError::io(&path, e))
    }
}

impl Stage for Synth {
    const KIND: &'static str = "synth";
    const VERSION: u32 = 1;

    fn outputs(&self) -> Vec<String> {
        vec!["train.jsonl".into(), "test.jsonl".into()]
    }

    fn check(&self) -> Vec<ParamProblem> {
        let mut problems = Vec::new();
        let mut add = |param: &str, message: String, help: &str| {
            problems.push(ParamProblem { param: param.into(), message, help: help.into() });
        };
        for (param, count) in [("train", self.train), ("test", self.test)] {
            if count == 0 {
                add(param, "no problems: nothing can use an empty file".into(), "write 1 or more");
            }
        }
        if self.levels.is_empty() {
            add("levels", "no level given".into(), "write `levels = [1, 2]`");
        }
        for (place, level) in self.levels.iter().enumerate() {
            if !(1..=5).contains(level) {
                add("levels", format!("there is no level {level}"), "levels are 1 to 5");
            }
            if self.levels[..place].contains(level) {
                add("levels", format!("level {level} stands twice"), "name each level once");
            }
        }
        if !self.weights.is_empty() && self.weights.len() != self.levels.len() {
            add(
                "weights",
                format!("{} weights for {} levels", self.weights.len(), self.levels.len()),
                "give one weight for each level, or none",
            );
        }
        let usable = |w: &f64| w.is_finite() && *w >= 0.0;
        let all_usable = self.weights.iter().all(usable) && self.weights.iter().sum::<f64>() > 0.0;
        if !self.weights.is_empty() && !all_usable {
            add("weights", "not usable as shares".into(), "use numbers from 0 up, not all 0");
        }
        if self.largest < 5 {
            add("largest", format!("{} leaves no room", self.largest), "use 5 or more");
        }
        if !(0.0..=1.0).contains(&self.direct) {
            add("direct", format!("{} is no share", self.direct), "use a number from 0 to 1");
        }
        problems
    }

    fn run(&self, ctx: &StageCtx) -> Result<(), StageError> {
        self.write_split(ctx, Split::Train, self.train)?;
        ctx.progress(1, 2, "files");
        self.write_split(ctx, Split::Test, self.test)?;
        ctx.progress(2, 2, "files");
        Ok(())
    }
}

#[cfg(test)]
mod tests;
