//! The keys of a stage that the engine reads; all others are params of its kind.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value as Json};

use crate::plan::Resources;

use super::node::Step;
use super::shape::{self, Misfit};

/// What the engine reads of a `[stage.NAME]` table.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "Stage settings")]
pub(crate) struct Settings {
    /// Fan the stage out: one instance per arm (`["arm"]`), per value of an axis of `[matrix]`, or
    /// per combination (`["arm", "seed"]`).
    #[schemars(extend("examples" = [["arm"], ["arm", "seed"]]))]
    pub foreach: Vec<String>,
    /// Which arms a stage with `foreach = ["arm"]` has instances for. Default: all.
    pub arms: Option<Vec<String>>,
    /// Stop the stage after this long, for example `"90s"` or `"2h 30m"`. Default: never.
    #[schemars(extend("examples" = ["2h"]))]
    pub timeout: Option<String>,
    /// How often a failure that may pass (a network time-out, a worker killed by the system) is
    /// tried again, with what state the stage has saved. Default: 0.
    pub retries: u32,
    /// What the stage occupies while it runs.
    pub resources: ResourceSettings,
    /// `false`: the stage always runs and its result is never taken from the cache.
    pub cache: Option<bool>,
    /// Copy the stage's output to this path below `results/NAME/`.
    pub publish: Option<String>,
}

/// What a stage occupies while it runs.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "Resources")]
pub(crate) struct ResourceSettings {
    /// GPUs. Default: what the kind needs.
    pub gpus: Option<u32>,
    /// Host memory, for example `"8GB"` or `"512MiB"`.
    #[schemars(extend("examples" = ["8GB"]))]
    pub memory: Option<String>,
    /// CPU cores. Default: 1.
    pub cpus: Option<u32>,
}

/// Names of the settings.
pub(crate) const SETTINGS: [&str; 7] =
    ["foreach", "arms", "timeout", "retries", "resources", "cache", "publish"];

/// Settings that the whole stage shares; an arm or `[defaults]` cannot change them.
pub(crate) const STRUCTURE: [&str; 3] = ["kind", "foreach", "arms"];

/// True for keys of a stage that are not params.
pub(crate) fn is_setting(key: &str) -> bool {
    key == "kind" || SETTINGS.contains(&key)
}

/// Settings in the units that a plan uses.
#[derive(Debug, Default)]
pub(crate) struct Checked {
    pub timeout: Option<Duration>,
    pub retries: u32,
    /// `gpus` is `None` when the kind decides.
    pub gpus: Option<u32>,
    pub memory: u64,
    pub cpus: u32,
    pub cache: bool,
    pub publish: Option<String>,
}

impl Checked {
    /// The resources of a stage whose kind asks for `default_gpus` by itself.
    pub fn resources(&self, default_gpus: u32) -> Resources {
        Resources { gpus: self.gpus.unwrap_or(default_gpus), memory: self.memory, cpus: self.cpus }
    }
}

/// Reads settings with their variables filled in, or lists every mistake in them.
pub(crate) fn parse(settings: Map<String, Json>) -> Result<Checked, Vec<Misfit>> {
    if settings.is_empty() {
        return Settings::default().check();
    }
    parse_structure(settings.clone()).and_then(Settings::check).map_err(|mut found| {
        // What is left without the mistakes may have more.
        let wrong = |key: &String| found.iter().any(|m| m.path.first() == Some(&Step::Key(key.clone())));
        let rest: Map<_, _> = settings.into_iter().filter(|(key, _)| !wrong(key)).collect();
        let more = parse_structure(rest).and_then(Settings::check).err();
        found.extend(more.into_iter().flatten());
        found
    })
}

/// As [`parse`], leaving durations, sizes and paths as text.
pub(crate) fn parse_structure(settings: Map<String, Json>) -> Result<Settings, Vec<Misfit>> {
    let value = Json::Object(settings);
    Settings::deserialize(&value).map_err(|error| {
        let schema = schemars::schema_for!(Settings).to_value();
        let mut found = shape::misfits(&schema, &value);
        if found.is_empty() {
            found.push(Misfit {
                path: Vec::new(),
                code: "wrong-type",
                message: error.to_string(),
                help: "see `pipeline schema`".to_owned(),
            });
        }
        found
    })
}

impl Settings {
    /// Reads durations, sizes and paths.
    fn check(self) -> Result<Checked, Vec<Misfit>> {
        let mut found = Vec::new();
        let timeout = self.timeout.and_then(|text| match duration(&text) {
            Ok(timeout) => Some(timeout),
            Err(help) => {
                found.push(misfit(&["timeout"], "bad-duration", format!("`{text}` is not a duration"), help));
                None
            }
        });
        let memory = match self.resources.memory.as_deref().map(|text| (text, size(text))) {
            None => 0,
            Some((_, Ok(bytes))) => bytes,
            Some((text, Err(help))) => {
                found.push(misfit(
                    &["resources", "memory"],
                    "bad-size",
                    format!("`{text}` is not a size"),
                    help,
                ));
                0
            }
        };
        let publish = self.publish.and_then(|path| match super::publish::check_path(&path) {
            Ok(()) => Some(path),
            Err(message) => {
                found.push(misfit(
                    &["publish"],
                    "bad-publish",
                    message,
                    "write a path below results/NAME/, such as \"table\" or \"charts/accuracy\"".to_owned(),
                ));
                None
            }
        });
        if !found.is_empty() {
            return Err(found);
        }
        Ok(Checked {
            timeout,
            retries: self.retries,
            gpus: self.resources.gpus,
            memory,
            cpus: self.resources.cpus.unwrap_or(0),
            cache: self.cache.unwrap_or(true),
            publish,
        })
    }
}

fn misfit(path: &[&str], code: &'static str, message: String, help: String) -> Misfit {
    Misfit { path: path.iter().map(|key| Step::Key((*key).to_owned())).collect(), code, message, help }
}

/// Reads `90s`, `2h 30m`, `1d`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    const HELP: &str = "write a number and a unit, such as \"90s\", \"45m\", \"2h 30m\" or \"1d\"";
    if text.trim().parse::<f64>().is_ok() {
        return Err(format!("add a unit: \"{}s\" or \"{}h\"", text.trim(), text.trim()));
    }
    let span: jiff::Span = text.parse().map_err(|_| HELP.to_owned())?;
    let duration =
        span.to_duration(jiff::SpanRelativeTo::days_are_24_hours()).map_err(|_| HELP.to_owned())?;
    match Duration::try_from(duration) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        _ => Err("write a duration longer than nothing, or leave it out".to_owned()),
    }
}

/// Reads `8GB`, `512MiB`.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    if let Ok(number) = text.trim().parse::<f64>() {
        return Err(format!("add a unit: \"{number}GB\" or \"{number}MB\""));
    }
    match text.parse::<bytesize::ByteSize>() {
        Ok(size) if size.as_u64() > 0 => Ok(size.as_u64()),
        _ => Err("write a number and a unit, such as \"8GB\" or \"512MiB\"".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        let seconds = |text| duration(text).map(|duration| duration.as_secs_f64());
        for (text, wanted) in [
            ("90s", 90.0),
            ("1.5h", 5400.0),
            ("2h 30m", 9000.0),
            ("2h30m", 9000.0),
            ("1d", 86_400.0),
            ("250ms", 0.25),
            ("10 minutes", 600.0),
        ] {
            assert_eq!(seconds(text), Ok(wanted), "{text}");
        }
        for text in ["", "90", "h", "2 hous", "-5s", "0s", "1 month", "nan", "1e400h"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_have_units() {
        for (text, wanted) in [
            ("8GB", 8_000_000_000),
            ("512MiB", 536_870_912),
            ("1.5 GB", 1_500_000_000),
            ("100 kB", 100_000),
            ("4TiB", 4_398_046_511_104),
        ] {
            assert_eq!(size(text), Ok(wanted), "{text}");
        }
        for text in ["", "8", "GB", "8 gigs", "-1GB", "0GB"] {
            assert!(size(text).is_err(), "{text}");
        }
    }
}
