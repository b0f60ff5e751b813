//! `chart`: pictures of the results, as SVG and PNG.

use engine::kind::{Input, Inputs, ParamProblem, Stage, StageCtx, StageError, Tier};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::arms::Arm;
use crate::chart::{PAPER, accuracy, curves, png};
use crate::metrics;
use crate::table;

/// Draws claimed against measured accuracy, and training curves.
///
/// With `table` it writes `accuracy.svg` and `accuracy.png`: one row an arm with its 95 % interval
/// and the claimed value. With `metrics` it writes `curves.svg` and `curves.png`: one panel a
/// metric with one line an arm.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Chart {
    /// Heading of the pictures. Left out: none.
    #[serde(default)]
    pub title: String,
    /// The result of an `aggregate` stage, such as `"@table"`.
    #[serde(default)]
    pub table: Option<Input>,
    /// Training metrics by arm, such as `"@train[*]"`.
    #[serde(default)]
    pub metrics: Inputs,
    /// Which metrics to draw, in this order. Empty: all but times.
    #[serde(default)]
    pub curves: Vec<String>,
    /// Order and labels of the arms' curves: `"${arms}"`.
    #[serde(default)]
    pub arms: Vec<Arm>,
}

impl Chart {
    fn save(&self, ctx: &StageCtx, name: &str, svg: &str) -> Result<(), StageError> {
        let bitmap = png(svg).map_err(|e| StageError::new(Tier::Bug, format!("{name}.png: {e}")))?;
        for (extension, content) in [("svg", svg.as_bytes()), ("png", &bitmap)] {
            let path = ctx.out().join(format!("{name}.{extension}"));
            std::fs::write(&path, content).map_err(|e| StageError::io(&path, e))?;
        }
        Ok(())
    }
}

impl Stage for Chart {
    const KIND: &'static str = "chart";
    const VERSION: u32 = 5;

    fn outputs(&self) -> Vec<String> {
        let mut outputs = Vec::new();
        if self.table.is_some() {
            outputs.extend(["accuracy.svg".into(), "accuracy.png".into()]);
        }
        if !self.metrics.0.is_empty() {
            outputs.extend(["curves.svg".into(), "curves.png".into()]);
        }
        outputs
    }

    fn check(&self) -> Vec<ParamProblem> {
        if self.table.is_none() && self.metrics.0.is_empty() {
            return vec![ParamProblem {
                param: "table".into(),
                message: "nothing to draw".into(),
                help: "give `table = \"@table\"`, `metrics = \"@train[*]\"`, or both".into(),
            }];
        }
        Vec::new()
    }

    fn run(&self, ctx: &StageCtx) -> Result<(), StageError> {
        if let Some(input) = &self.table {
            let table = table::read(&ctx.input(input)?)?;
            self.save(ctx, "accuracy", &accuracy::draw(&table, &self.title, PAPER))?;
        }
        if !self.metrics.0.is_empty() {
            let panels = metrics::panels(ctx, &self.metrics, &self.arms, &self.curves)?;
            if panels.is_empty() {
                return Err(StageError::input("the metrics hold no values to draw"));
            }
            self.save(ctx, "curves", &curves::draw(&panels, &self.title, PAPER))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples_of_tests::{example_metrics, example_table};
    use std::collections::BTreeMap;
    use std::path::Path;

    fn draw(out: &Path) {
        let dir = tempfile::tempdir().unwrap();
        let table = dir.path().join("table.json");
        std::fs::write(&table, serde_json::to_string(&example_table()).unwrap()).unwrap();
        let mut inputs = BTreeMap::from([("@table".to_owned(), dir.path().to_owned())]);
        let mut metrics = Inputs::default();
        for (label, lines) in example_metrics() {
            let path = dir.path().join(format!("{label}.jsonl"));
            std::fs::write(&path, lines).unwrap();
            inputs.insert(format!("@train[{label}]"), path);
            metrics.0.insert(label.clone(), Input::new(format!("@train[{label}]")));
        }
        let stage = Chart {
            title: "Five arms <on> a tiny model & more".into(),
            table: Some(Input::new("@table")),
            metrics,
            curves: Vec::new(),
            arms: Vec::new(),
        };
        assert_eq!(Stage::check(&stage), []);
        stage.run(&StageCtx::detached(out, out, inputs)).unwrap();
        for name in stage.outputs() {
            assert!(out.join(&name).exists(), "{name}");
        }
    }

    /// Lightness of the darkest pixel, 0 to 255, in each row of a PNG.
    fn ink(png: &[u8]) -> Vec<u8> {
        let pixels = resvg::tiny_skia::Pixmap::decode_png(png).unwrap();
        pixels
            .pixels()
            .chunks(pixels.width() as usize)
            .map(|row| row.iter().map(|p| p.green()).min().unwrap())
            .collect()
    }

    #[test]
    fn pictures_are_drawn_with_text() {
        // `CHART_OUT` keeps them for a look.
        let kept = std::env::var_os("CHART_OUT");
        let temporary = tempfile::tempdir().unwrap();
        let out = kept.as_ref().map_or(temporary.path(), Path::new);
        draw(out);
        let svg = std::fs::read_to_string(out.join("accuracy.svg")).unwrap();
        assert!(svg.contains("Five arms &lt;on&gt; a tiny model &amp; more"));
        assert!(svg.contains(">Accuracy (%)<") && svg.contains(">claimed 60.0<"), "{svg}");
        // The title's rows hold dark pixels: the bundled font was found.
        let rows = ink(&std::fs::read(out.join("accuracy.png")).unwrap());
        assert!(rows[40..70].iter().any(|&darkest| darkest < 60));
        let curves = std::fs::read_to_string(out.join("curves.svg")).unwrap();
        assert!(curves.contains(">Reward (mean over rollouts)<") && curves.contains(">Step<"));
    }

    #[test]
    fn nothing_to_draw_is_found_by_check() {
        let stage: Chart = serde_json::from_str("{}").unwrap();
        assert_eq!(Stage::check(&stage)[0].param, "table");
    }
}
