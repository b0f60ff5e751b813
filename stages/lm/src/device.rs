//! Devices by the names that people write: `cpu`, `cuda:0`, `cuda:1`, …

use burn::tensor::{DType, Device};

/// Why a device cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// Not a device name.
    #[error("`{0}` is no device; write `cpu`, `cuda:0`, `cuda:1`, …")]
    Unknown(String),
    /// The program was built for the CPU only.
    #[error("`{0}` needs a program built with `--features cuda`; build it so, or use `cpu`")]
    NotBuilt(String),
    /// No such GPU here.
    #[error("`{name}` is not there: {found}; choose another device, or use `cpu`")]
    Missing {
        /// The device asked for.
        name: String,
        /// What there is instead.
        found: String,
    },
}

/// The GPUs that can be used, as `cuda:0`, `cuda:1`, …; empty without a driver or when built for
/// the CPU only.
pub fn gpus() -> Vec<String> {
    #[cfg(feature = "cuda")]
    {
        cuda::prepare();
        let devices = Device::enumerate(burn::tensor::DeviceType::Cuda);
        (0..devices.into_iter().count()).map(|index| format!("cuda:{index}")).collect()
    }
    #[cfg(not(feature = "cuda"))]
    Vec::new()
}

/// Opens a device by name.
///
/// # Errors
/// A name that is no device, or a GPU that this program or machine does not have.
pub fn open(name: &str) -> Result<Device, DeviceError> {
    if name == "cpu" {
        return Ok(Device::flex());
    }
    let index = name.strip_prefix("cuda:").and_then(|index| index.parse::<usize>().ok());
    let index = index.ok_or_else(|| DeviceError::Unknown(name.to_owned()))?;
    open_cuda(name, index)
}

#[cfg(feature = "cuda")]
fn open_cuda(name: &str, index: usize) -> Result<Device, DeviceError> {
    let found = gpus();
    if index < found.len() {
        return Ok(Device::cuda(index));
    }
    let found = if found.is_empty() { "this machine has no usable GPU".to_owned() } else { found.join(", ") };
    Err(DeviceError::Missing { name: name.to_owned(), found })
}

#[cfg(not(feature = "cuda"))]
fn open_cuda(name: &str, _index: usize) -> Result<Device, DeviceError> {
    Err(DeviceError::NotBuilt(name.to_owned()))
}

/// The number format that inference and frozen weights use on a device: bf16 on a GPU, f32 on the
/// CPU.
pub fn default_dtype(name: &str) -> DType {
    if name == "cpu" { DType::F32 } else { DType::BF16 }
}

#[cfg(feature = "cuda")]
mod cuda {
    use std::path::PathBuf;
    use std::sync::Once;

    use cubecl_runtime::config::{CubeClRuntimeConfig, RuntimeConfig};
    use serde_json::json;

    /// Keeps compiled kernels and tuning results on disk, so that only the first start on a machine
    /// compiles, and limits tuning to few candidates. A `cubecl.toml` of the user's own is not read.
    pub fn prepare() {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            let config = json!({
                "compilation": {"cache": true},
                "autotune": {"level": "minimal"},
                "environment": {"path": {"directory": kernel_cache()}},
            });
            if let Ok(config) = serde_json::from_value::<CubeClRuntimeConfig>(config) {
                CubeClRuntimeConfig::try_set(config.override_from_env());
            }
        });
    }

    /// `$XDG_CACHE_HOME/pipeline/kernels`, by default below `~/.cache`.
    fn kernel_cache() -> PathBuf {
        let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cache");
        let base = std::env::var_os("XDG_CACHE_HOME").map_or_else(home, PathBuf::from);
        base.join("pipeline").join("kernels")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        assert!(open("cpu").is_ok());
        assert!(matches!(open("gpu"), Err(DeviceError::Unknown(_))));
        assert!(matches!(open("cuda:x"), Err(DeviceError::Unknown(_))));
        assert!(open("cuda:99").unwrap_err().to_string().contains("cuda:99"));
        assert_eq!(default_dtype("cpu"), DType::F32);
        assert_eq!(default_dtype("cuda:0"), DType::BF16);
    }
}
