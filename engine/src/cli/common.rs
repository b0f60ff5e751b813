//! Arguments that several commands share, and what they stand for.

use std::path::{Path, PathBuf};

use super::{CliError, Host};
use crate::kind::{Access, Registry};
use crate::manifest;
use crate::plan::Plan;
use crate::ui::{self, text};

/// Which manifest, with which overrides.
#[derive(Debug, Clone, clap::Args)]
pub struct ManifestArgs {
    /// The manifest (TOML).
    pub manifest: PathBuf,
    /// Override a value: `stage.train.lr=5e-4`, `arm.lora.train.lr=2e-4`, `vars.n=20`, `seed=3`.
    #[arg(long = "set", value_name = "PATH=VALUE")]
    pub sets: Vec<String>,
}

impl ManifestArgs {
    /// Reads and checks the manifest.
    pub fn load(&self, registry: &Registry) -> Result<Plan, CliError> {
        Ok(manifest::load(&self.manifest, &self.sets, registry)?)
    }
}

/// Where the cache is.
#[derive(Debug, Clone, clap::Args)]
pub struct CacheArgs {
    /// The cache folder; by default `cache` in the folder where you are.
    #[arg(long, value_name = "DIR", env = "PIPELINE_CACHE", default_value = DEFAULT_CACHE, global = true)]
    pub cache: PathBuf,
}

const DEFAULT_CACHE: &str = "cache";

impl CacheArgs {
    /// Says so when the default cache is not there yet and another one lies beside the manifest or
    /// above it: whoever has changed folders would otherwise compute everything again.
    pub fn hint(&self, plan: &Plan) {
        if let Some(other) = self.overlooked(&plan.experiment.folder) {
            ui::note(format!(
                "note: there is no cache here yet, but one at {}; --cache {0} uses that one",
                text::short_path(&other)
            ));
        }
    }

    /// A cache in `folder` or above it, if the default one was asked for and is not there.
    pub fn overlooked(&self, folder: &Path) -> Option<PathBuf> {
        if self.cache != Path::new(DEFAULT_CACHE) || self.cache.exists() {
            return None;
        }
        let folder = folder.canonicalize().ok()?;
        let caches = folder.ancestors().map(|folder| folder.join(DEFAULT_CACHE));
        caches.into_iter().find(|cache| cache.join("records").is_dir())
    }
}

/// On what to compute.
#[derive(Debug, Clone, clap::Args)]
pub struct DeviceArgs {
    /// `auto` (the GPUs if there are any), `cpu`, `cuda` (all GPUs) or `cuda:N`.
    #[arg(long, value_name = "DEVICE", env = "PIPELINE_DEVICE", default_value = "auto")]
    pub device: String,
}

impl DeviceArgs {
    /// The GPUs to use; none means the CPU.
    pub fn devices(&self, host: &Host) -> Result<Vec<String>, CliError> {
        let none = |wanted: &str, there: &[String]| {
            let there = match there {
                [] => "it sees no GPU (was it built with `--features cuda`, is there a driver?)".to_owned(),
                there => format!("it sees {}", there.join(", ")),
            };
            CliError::environment(format!("this program cannot use {wanted}: {there}"))
        };
        match self.device.as_str() {
            "cpu" => Ok(Vec::new()),
            "auto" => Ok((host.devices)()),
            "cuda" => {
                let there = (host.devices)();
                if there.is_empty() { Err(none("cuda", &there)) } else { Ok(there) }
            }
            one => {
                let number = one.strip_prefix("cuda:").and_then(|number| number.parse::<u32>().ok());
                if number.is_none() {
                    return Err(CliError::usage(format!(
                        "`--device {one}` is none of auto, cpu, cuda, cuda:0, cuda:1, …"
                    )));
                }
                let there = (host.devices)();
                if there.iter().any(|device| device == one) {
                    Ok(vec![one.to_owned()])
                } else {
                    Err(none(one, &there))
                }
            }
        }
    }
}

/// How stages may reach external sources.
#[derive(Debug, Clone, clap::Args)]
pub struct AccessArgs {
    /// Use only the cache and mirrors, never the network.
    #[arg(long, env = "PIPELINE_OFFLINE")]
    pub offline: bool,
    /// Take sources that begin with PREFIX from FOLDER. Repeatable.
    #[arg(long = "mirror", value_name = "PREFIX=FOLDER", env = "PIPELINE_MIRROR", value_delimiter = ',')]
    pub mirrors: Vec<String>,
}

impl AccessArgs {
    /// The settings for stages.
    pub fn access(&self) -> Result<Access, CliError> {
        let mut access = Access { offline: self.offline, ..Access::default() };
        for mirror in &self.mirrors {
            // Prefixes may hold `=` (in URLs), folders hardly do: split at the last one.
            let Some((prefix, folder)) = mirror.rsplit_once('=').filter(|(prefix, _)| !prefix.is_empty())
            else {
                return Err(CliError::usage(format!("`--mirror {mirror}` is not PREFIX=FOLDER")));
            };
            let folder = std::path::absolute(folder)
                .map_err(|error| CliError::environment(format!("mirror folder {folder}: {error}")))?;
            access.mirrors.insert(prefix.to_owned(), folder);
        }
        Ok(access)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn devices(choice: &str, there: fn() -> Vec<String>) -> Result<Vec<String>, CliError> {
        DeviceArgs { device: choice.into() }.devices(&Host { devices: there })
    }

    #[test]
    fn a_missing_gpu_is_an_error_and_never_replaced_by_the_cpu() {
        let two = || vec!["cuda:0".to_owned(), "cuda:1".to_owned()];
        assert!(devices("auto", Vec::new).unwrap().is_empty());
        assert_eq!(devices("auto", two).unwrap().len(), 2);
        assert_eq!(devices("cuda:1", two).unwrap(), ["cuda:1"]);
        assert!(devices("cpu", two).unwrap().is_empty());
        assert_eq!(devices("cuda", Vec::new).unwrap_err().code(), 3);
        assert_eq!(devices("cuda:2", two).unwrap_err().code(), 3);
        assert_eq!(devices("gpu", two).unwrap_err().code(), 2);
    }

    #[test]
    fn mirrors_split_at_the_last_equals_sign() {
        let args = AccessArgs { offline: true, mirrors: vec!["https://x/?a=b=/data".into()] };
        let access = args.access().unwrap();
        assert_eq!(access.mirrors["https://x/?a=b"], PathBuf::from("/data"));
        let wrong = AccessArgs { offline: false, mirrors: vec!["nothing".into()] };
        assert_eq!(wrong.access().unwrap_err().code(), 2);
    }
}
