//! The model that a command works with, as arguments.

use std::path::{Path, PathBuf};

use clap::Args;
use engine::cli::CliError;
use lm::adapter::Adapter;
use lm::checkpoint::Checkpoint;
use lm::model::Model;

use super::failed;
use crate::adapter::read_adapter;
use crate::model::Precision;

/// A checkpoint, what is put on it, and where and in which numbers it runs.
#[derive(Debug, Args)]
pub struct ModelArgs {
    /// A checkpoint folder, or a GGUF file or the folder that holds one.
    pub model: PathBuf,
    /// An adapter on the model: the folder that `train` wrote.
    #[arg(long)]
    adapter: Option<PathBuf>,
    /// `cpu` or `cuda:N`; the first GPU by default, if there is one.
    #[arg(long)]
    device: Option<String>,
    /// Number format: `auto` (bf16 on a GPU, f32 on the CPU), `f32` or `bf16`.
    #[arg(long, default_value = "auto", value_parser = from_name::<Precision>)]
    precision: Precision,
}

impl ModelArgs {
    /// The folders and files that are read.
    pub fn places(&self) -> impl Iterator<Item = &Path> {
        [Some(self.model.as_path()), self.adapter.as_deref()].into_iter().flatten()
    }

    /// Loads the weights of an opened checkpoint, and the adapter if one is named.
    pub fn load(&self, checkpoint: &Checkpoint) -> Result<(Model, Option<Adapter>), CliError> {
        let first = || lm::device::gpus().into_iter().next().unwrap_or_else(|| "cpu".to_owned());
        let name = self.device.clone().unwrap_or_else(first);
        let device = lm::device::open(&name).map_err(failed)?;
        let model = Model::load(checkpoint, &device, self.precision.on(&name)).map_err(failed)?;
        let adapter = self.adapter.as_deref().map(|path| read_adapter(path, model.config(), &device));
        Ok((model, adapter.transpose().map_err(failed)?))
    }
}

/// A value by the name that manifests give it.
pub fn from_name<T: serde::de::DeserializeOwned>(name: &str) -> Result<T, String> {
    serde_json::from_value(serde_json::json!(name)).map_err(|error| error.to_string())
}
