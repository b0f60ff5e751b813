//! From rows to token sequences.

use engine::kind::{Input, StageCtx, StageError};
use trainer::data::Sequence;
use trainer::trainee::Trainee;

use super::Train;
use crate::demonstration::Demonstrator;
use crate::model::{OpenModel, device};
use crate::questions::read_questions;

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
        let demonstrator = Demonstrator::new(opened, &self.prompt)?;
        rows.iter()
            .map(|row| {
                let solution = row.solution.as_deref().unwrap_or(&row.gold);
                let made = demonstrator.make(&row.problem, solution)?;
                Ok(Sequence::completion(&made.prompt, &made.answer))
            })
            .collect()
    }
}
