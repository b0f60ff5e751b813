//! `report`: what a reader sees of an experiment, as one HTML page and as Markdown.
//!
//! - [`view`]: numbers turned into the words and cells of both documents
//! - [`cost`]: what training and evaluation cost; [`audit`]: how answers were found; [`checks`]: how
//!   training data came about, and whether converted models compute the same
//! - [`data`]: the samples, as the page's script reads them; [`pack`]: how the page holds them
//! - [`made`]: graph, keys, times and versions, which are put into published copies
//! - `page.html`, `style.css`, `page.js`, `math.js`, `report.md`, `made.html`, `made.md`: the templates
//! - `katex/`: what typesets mathematics

mod audit;
mod checks;
mod cost;
mod data;
mod made;
mod pack;
mod view;

use std::path::Path;

use engine::facts::Facts;
use engine::kind::{Input, Inputs, Stage, StageCtx, StageError, Tier};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, context};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::arms::Arm;
use crate::chart::{PAGE, accuracy, curves};
use crate::{metrics, table};
pub use cost::Budget;

/// Writes the report: claimed against measured, how sure one can be, and every sample behind it.
///
/// `report.html` is one file that needs no network: charts, tables, training curves, deviations,
/// and a browser of all samples with filters (flipped, truncated, no answer, graders disagree),
/// side by side across arms, with mathematics typeset. `report.md` holds the same findings and tables
/// as text. The published copies also tell how they were made: the graph with state, time and key of
/// every stage, costs, versions and seeds.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// Title of the experiment: `"${title}"`.
    pub title: String,
    /// A paragraph on what is asked and claimed.
    #[serde(default)]
    pub summary: String,
    /// The result of an `aggregate` stage, such as `"@table"`.
    pub table: Input,
    /// Graded samples of every arm, such as `"@grade[*]"`. Left out: no sample browser.
    #[serde(default)]
    pub samples: Inputs,
    /// Training metrics by arm: `"@train[*]"`, or the files alone. Left out: no curves and no costs.
    #[serde(default)]
    pub metrics: Inputs,
    /// Which metrics to draw, in this order. Empty: all but times.
    #[serde(default)]
    pub curves: Vec<String>,
    /// Timings of the evaluations by arm, such as `"@eval[*]/timing.json"`. Left out: no speeds.
    #[serde(default)]
    pub timings: Inputs,
    /// How training sets were made: the `counts.json` of `prepare`, such as `"@data/counts.json"`.
    #[serde(default)]
    pub data: Inputs,
    /// How converted models compare with what they come from, such as `"@convert[*]/equivalence.json"`.
    #[serde(default)]
    pub conversions: Inputs,
    /// What the paper spent on each arm; the report then says which share of it was spent here.
    #[serde(default)]
    pub budget: Budget,
    /// Order and labels of the arms: `"${arms}"`.
    #[serde(default)]
    pub arms: Vec<Arm>,
    /// What the recipe does differently: `"${deviations}"`. Left out: as the table has it.
    #[serde(default)]
    pub deviations: Value,
}

impl Stage for Report {
    const KIND: &'static str = "report";
    const VERSION: u32 = 6;

    fn outputs(&self) -> Vec<String> {
        vec!["report.html".into(), "report.md".into()]
    }

    fn run(&self, ctx: &StageCtx) -> Result<(), StageError> {
        let mut table = table::read(&ctx.input(&self.table)?)?;
        if !self.deviations.is_null() {
            table.deviations = self.deviations.clone();
        }
        let panels = metrics::panels(ctx, &self.metrics, &self.arms, &self.curves)?;
        let curves = match panels.is_empty() {
            true => String::new(),
            false => curves::draw(&panels, "", PAGE),
        };
        let told = data::gather(ctx, &self.samples, &self.arms, &table.base)?;
        let mathematics = told
            .mathematics
            .then(|| [include_str!("katex/katex.js"), include_str!("katex/katex.css")].map(pack::pack));
        let values = context! {
            title => &self.title,
            summary => &self.summary,
            view => minijinja::Value::from(Serde(view::View::of(&table))),
            chart => accuracy::draw(&table, "", PAGE),
            curves,
            costs => minijinja::Value::from(Serde(cost::gather(ctx, &self.metrics, &self.arms, &self.budget)?)),
            speeds => minijinja::Value::from(Serde(cost::speeds(ctx, &self.timings, &self.arms)?)),
            data => minijinja::Value::from(Serde(checks::data(ctx, &self.data)?)),
            conversions => minijinja::Value::from(Serde(checks::conversions(ctx, &self.conversions, &self.arms)?)),
            audits => minijinja::Value::from(Serde(told.audits)),
            has_samples => !told.samples.questions.is_empty(),
            samples => pack::pack(&data::json(&told.samples)),
            mathematics,
            style => include_str!("style.css"),
            scripts => [include_str!("math.js"), include_str!("page.js")].concat(),
        };
        for (name, template) in
            [("report.html", include_str!("page.html")), ("report.md", include_str!("report.md"))]
        {
            let path = ctx.out().join(name);
            let text = render(name, template, &values)
                .map_err(|e| StageError::new(Tier::Bug, format!("{name}: {e:#}")))?;
            std::fs::write(&path, text).map_err(|e| StageError::io(&path, e))?;
        }
        Ok(())
    }

    fn completes(&self) -> bool {
        true
    }

    fn complete(&self, folder: &Path, facts: &Facts) -> Result<(), StageError> {
        let [html, markdown] = ["report.html", "report.md"].map(|name| folder.join(name));
        let read = |path: &Path| std::fs::read_to_string(path).map_err(|e| StageError::io(path, e));
        let completed = made::complete(&read(&html)?, &read(&markdown)?, facts, &self.arms)
            .map_err(|e| StageError::new(Tier::Bug, format!("made.html: {e:#}")))?;
        for (path, text) in [(html, completed.0), (markdown, completed.1)] {
            std::fs::write(&path, text).map_err(|e| StageError::io(&path, e))?;
        }
        Ok(())
    }
}

fn render(name: &str, template: &str, values: &minijinja::Value) -> Result<String, minijinja::Error> {
    let mut environment = Environment::new();
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    environment.set_auto_escape_callback(|name| match name.ends_with(".html") {
        true => AutoEscape::Html,
        false => AutoEscape::None,
    });
    environment.render_named_str(name, template, values)
}

#[cfg(test)]
mod tests;
