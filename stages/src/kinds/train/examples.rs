//! From rows to token sequences.

use std::sync::Arc;

use engine::kind::{Input, StageCtx, StageError};
use trainer::data::Sequence;
#[cfg(feature = "cuda")]
use trainer::parallel::Nccl;
use trainer::parallel::{Collective, OnFirst};
use trainer::reference::Reference;
use trainer::trainee::Trainee;

use super::Train;
use crate::adapter::read_like;
use crate::demonstration::{REFERENCE_FILE, sequences};
use crate::model::{OpenModel, device};
use crate::questions::read_questions;

impl Train {
    /// The model (in f32 where every parameter trains on the CPU) and what trains on it, on every GPU
    /// that the stage holds (`resources.gpus`).
    pub(super) fn trainee(&self, ctx: &StageCtx, opened: &OpenModel) -> Result<Trainee, StageError> {
        let model = opened.load(ctx, self.precision)?;
        let trainee = match &self.adapter {
            None => Trainee::full(model),
            Some(params) => {
                let fresh = params.fresh(model.config(), self.seed, &device(ctx)?)?;
                let adapter = match &self.adapter_from {
                    None => fresh,
                    Some(from) => read_like(&ctx.input(from)?, &fresh, model.config(), &device(ctx)?)?,
                };
                Trainee::adapter(model, adapter)
            }
        };
        let others = match ctx.device() {
            "cpu" => vec!["cpu".to_owned(); cpu_ranks(std::env::var("PIPELINE_CPU_RANKS").ok())? - 1],
            _ => lm::device::gpus().split_off(1),
        };
        if others.is_empty() {
            return Ok(trainee);
        }
        let open = |name: &String| lm::device::open(name).map_err(StageError::environment);
        let others = others.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        Ok(trainee.on_devices(&others, self.collective(ctx, others.len() + 1)))
    }

    /// How `gpus` GPUs exchange gradients and parameters.
    fn collective(&self, ctx: &StageCtx, gpus: usize) -> Arc<dyn Collective> {
        if ctx.device() == "cpu" {
            return Arc::new(OnFirst);
        }
        #[cfg(feature = "cuda")]
        match Nccl::new(&(0..gpus).collect::<Vec<_>>()) {
            Ok(nccl) => return Arc::new(nccl),
            Err(problem) => ctx.message(format!("GPUs exchange tensors through the host, slowly: {problem}")),
        }
        let _ = (ctx, gpus);
        Arc::new(OnFirst)
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
        sequences(opened, &self.prompt, &read_questions(&ctx.input(rows)?, limit)?)
    }

    /// The reference's log-probabilities for the training sequences, where a stage computed them.
    pub(super) fn reference(
        &self,
        ctx: &StageCtx,
        data: &[Sequence],
    ) -> Result<Option<Reference>, StageError> {
        let Some(reference) = self.method.reference() else { return Ok(None) };
        let path = ctx.input(reference)?.join(REFERENCE_FILE);
        Reference::read(&path, data).map(Some).map_err(StageError::input)
    }
}

/// Devices that share the work of a CPU, where `PIPELINE_CPU_RANKS` asks for several: to rehearse what
/// several GPUs do. Results change by rounding only.
fn cpu_ranks(asked: Option<String>) -> Result<usize, StageError> {
    let Some(text) = asked.filter(|text| !text.is_empty()) else { return Ok(1) };
    let ranks = text.parse().ok().filter(|&ranks| ranks > 0);
    let problem = || format!("PIPELINE_CPU_RANKS is `{text}`; write a number from 1, or unset it");
    ranks.ok_or_else(|| StageError::environment(problem()))
}

#[cfg(test)]
mod tests {
    use super::cpu_ranks;

    #[test]
    fn ranks_of_a_cpu_are_a_number_or_an_error() {
        let of = |text: &str| cpu_ranks(Some(text.to_owned()));
        assert_eq!(cpu_ranks(None).unwrap(), 1);
        assert_eq!(of("").unwrap(), 1);
        assert_eq!(of("3").unwrap(), 3);
        for text in ["0", "two", "-1"] {
            assert!(of(text).unwrap_err().to_string().contains(text), "{text}");
        }
    }
}
