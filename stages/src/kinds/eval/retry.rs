//! A second request for the final answer, where the first text holds none in a box.

use engine::kind::StageError;
use lm::generate::{Request, SamplingParams};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::journal::Journal;
use super::{Eval, Work};
use crate::model::{OpenModel, Prepared};
use crate::questions::Question;
use crate::samples::Sample;

/// How the final answer is asked for once more: the model goes on from its own text and this
/// request, greedily, up to the end of the line.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Retry {
    /// The request; it stands after the first text and begins the second.
    pub text: String,
    /// Most tokens of the second answer.
    pub max_new_tokens: usize,
}

impl Default for Retry {
    fn default() -> Self {
        Self { text: "\n\nThe final answer is $\\boxed{".into(), max_new_tokens: 48 }
    }
}

impl Retry {
    /// The samples that are still to be asked again, and how many are asked in all. A text that
    /// fills the model's context cannot be.
    pub(super) fn requests<'a>(
        &'a self,
        eval: &Eval,
        opened: &OpenModel,
        questions: &[Question],
        prompts: &[Prepared],
        first: &Journal,
        done: &Journal,
    ) -> Result<(Vec<Work<'a>>, usize), StageError> {
        let context = opened.checkpoint.config().max_position_embeddings;
        let stops = eval.params(opened);
        let params = SamplingParams {
            temperature: 0.0,
            max_tokens: self.max_new_tokens,
            stop_token_ids: stops.stop_token_ids,
            stop_strings: [vec!["\n".to_owned()], stops.stop_strings].concat(),
            ..SamplingParams::default()
        };
        let (mut work, mut total) = (Vec::new(), 0);
        for sample in first.samples().filter(|sample| asks(sample)) {
            let place = questions.iter().position(|question| question.id == sample.id);
            let Some(prompt) = place.map(|at| &prompts[at].ids) else { continue };
            let written = sample.text.strip_prefix(&eval.prompt.assistant_prefix).unwrap_or(&sample.text);
            let text = format!("{written}{}", self.text);
            let ids = [prompt.clone(), opened.tokenizer.encode(&text).map_err(StageError::input)?].concat();
            if ids.len() + self.max_new_tokens > context {
                continue;
            }
            total += 1;
            if !done.has(&sample.id, sample.sample) {
                let request = Request { prompt: ids, seeds: vec![0], params: params.clone() };
                work.push(Work { request, samples: vec![sample.clone()], before: &self.text });
            }
        }
        Ok((work, total))
    }
}

/// Whether a text holds no box that can be read.
fn asks(sample: &Sample) -> bool {
    grader::audit::needs_retry(&grader::grade_output(&sample.text, &sample.gold, "math"))
}
