//! From rows to token sequences.

use engine::kind::{Input, StageCtx, StageError};
use lm::template::PromptTemplate;
use trainer::data::Sequence;
use trainer::trainee::Trainee;

use super::Train;
use crate::model::{OpenModel, device};
use crate::questions::{Question, read_questions};

impl Train {
    /// The model (in f32 where every parameter trains on the CPU) and what trains on it.
    pub(super) fn trainee(&self, ctx: &StageCtx, opened: &OpenModel) -> Result<Trainee, StageError> {
        let model = opened.load(ctx, self.precision)?;
        Ok(match &self.adapter {
            None => Trainee::full(model),
            Some(params) => {
                let adapter = params.fresh(model.config(), self.seed, &device(ctx)?)?;
                Trainee::adapter(model, adapter)
            }
        })
    }

    /// Training and held-out sequences.
    pub(super) fn sequences(
        &self,
        ctx: &StageCtx,
        opened: &OpenModel,
    ) -> Result<(Vec<Sequence>, Vec<Sequence>), StageError> {
        let train = self.read(ctx, opened, &self.data, self.limit)?;
        let held_out = match &self.held_out {
            Some(held_out) => self.read(ctx, opened, held_out, self.held_out_limit)?,
            None => Vec::new(),
        };
        Ok((train, held_out))
    }

    fn read(
        &self,
        ctx: &StageCtx,
        opened: &OpenModel,
        rows: &Input,
        limit: Option<usize>,
    ) -> Result<Vec<Sequence>, StageError> {
        let rows = read_questions(&ctx.input(rows)?, limit)?;
        rows.iter().map(|row| self.sequence(opened, row)).collect()
    }

    /// A prompt and the worked solution, ended by the token that ends a turn.
    fn sequence(&self, opened: &OpenModel, row: &Question) -> Result<Sequence, StageError> {
        let prompt = self.prompt.prepare(opened, &row.problem, &[])?.ids;
        let solution = row.solution.as_deref().unwrap_or(&row.gold);
        let text = format!("{}{solution}", separator(self.prompt.template));
        let mut completion = opened.tokenizer.encode(&text).map_err(StageError::input)?;
        completion.push(end_of_turn(opened, self.prompt.template)?);
        Ok(Sequence::completion(&prompt, &completion))
    }
}

/// What stands between a prompt and its answer: templates of plain text end at a word.
fn separator(template: PromptTemplate) -> &'static str {
    match template {
        PromptTemplate::QuestionAnswer => " ",
        PromptTemplate::Plain => "\n",
        _ => "",
    }
}

/// The token that a trained answer ends with.
fn end_of_turn(opened: &OpenModel, template: PromptTemplate) -> Result<u32, StageError> {
    let turn_end = template.turn_end().and_then(|token| opened.tokenizer.token_id(token));
    let first = || opened.stop_tokens(template).first().copied();
    turn_end.or_else(first).ok_or_else(|| {
        StageError::input("the model names no token that ends a text")
            .with_help("add `eos_token_id` to its generation_config.json")
    })
}
