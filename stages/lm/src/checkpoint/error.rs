//! What can be wrong with a checkpoint.

use std::path::{Path, PathBuf};

use crate::config::ConfigError;

/// A checkpoint that cannot be read or written, and where.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The operating system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// File or folder.
        path: PathBuf,
        /// What it said.
        source: std::io::Error,
    },
    /// The configuration is missing or unusable.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The path holds no checkpoint.
    #[error("{}: {detail}", path.display())]
    NotACheckpoint {
        /// What was opened.
        path: PathBuf,
        /// What was looked for.
        detail: String,
    },
    /// A file is damaged before any tensor could be named.
    #[error("{}: {detail}", file.display())]
    Header {
        /// The damaged file.
        file: PathBuf,
        /// What is wrong and what to do.
        detail: String,
    },
    /// One tensor is damaged or unusable.
    #[error("{}: tensor `{tensor}` {detail}", file.display())]
    Tensor {
        /// File that holds it.
        file: PathBuf,
        /// Its name.
        tensor: String,
        /// What is wrong.
        detail: String,
    },
    /// Tensors that the configuration calls for are not there.
    #[error("{}: {count} tensors are missing: {}", path.display(), tensors.join(", "))]
    Missing {
        /// The checkpoint.
        path: PathBuf,
        /// How many are missing.
        count: usize,
        /// Names of the first few.
        tensors: Vec<String>,
    },
    /// Tensors that the configuration has no place for.
    #[error("{}: {count} tensors have no place in the model that config.json describes: {}", path.display(), tensors.join(", "))]
    Extra {
        /// The checkpoint.
        path: PathBuf,
        /// How many there are.
        count: usize,
        /// Names of the first few.
        tensors: Vec<String>,
    },
}

impl CheckpointError {
    pub(super) fn io(path: &Path, source: std::io::Error) -> Self {
        CheckpointError::Io { path: path.to_path_buf(), source }
    }

    pub(super) fn header(file: &Path, detail: impl Into<String>) -> Self {
        CheckpointError::Header { file: file.to_path_buf(), detail: detail.into() }
    }

    pub(super) fn tensor(file: &Path, tensor: &str, detail: impl Into<String>) -> Self {
        CheckpointError::Tensor { file: file.to_path_buf(), tensor: tensor.into(), detail: detail.into() }
    }
}
