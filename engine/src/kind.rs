//! The seam between the engine and the stage kinds: [`Stage`] (what a kind implements), [`Input`]
//! (a reference inside params), [`StageCtx`] (what a running stage may do) and [`Registry`].

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::event::{WorkerEvent, WorkerEvents};
use crate::facts::Facts;

/// A stage kind: the type itself is the kind's params as written in a manifest.
///
/// Derive `Serialize`, `Deserialize` (with `deny_unknown_fields` and `default`s) and `JsonSchema`;
/// the doc comments become `pipeline kinds` and the editor schema.
pub trait Stage: Serialize + DeserializeOwned + JsonSchema + Send + Sync + 'static {
    /// The name in `kind = "…"`.
    const KIND: &'static str;
    /// Raised by the author whenever the same params and inputs give another result.
    const VERSION: u32;

    /// Relative names that must exist in [`StageCtx::out`] when [`Stage::run`] returns. Other
    /// stages may refer to these and to what lies below them.
    fn outputs(&self) -> Vec<String>;

    /// True when the artifact may hold more than [`Stage::outputs`] knows beforehand, for example
    /// a fetched repository; references to other names are then not checked.
    fn has_more_outputs(&self) -> bool {
        false
    }

    /// Checks between fields, at plan time. Each problem names the param it is about.
    fn check(&self) -> Vec<ParamProblem> {
        Vec::new()
    }

    /// What of the machine decides the result (for example `device = "cuda"`, `dtype = "bf16"`),
    /// given the device class the run uses. Part of the key.
    fn environment(&self, _device_class: &str) -> BTreeMap<String, String> {
        BTreeMap::new()
    }

    /// External sources (URLs, hub revisions) whose digests the lock file pins.
    fn sources(&self) -> Vec<String> {
        Vec::new()
    }

    /// True for kinds that run programs named by the manifest; these need the user's consent.
    fn needs_trust(&self) -> bool {
        false
    }

    /// GPU slots this stage occupies when the run has GPUs and the manifest does not say.
    fn default_gpus(&self) -> u32 {
        0
    }

    /// A line for `pipeline plan` about cost or memory, computed without running anything.
    fn estimate(&self, _inputs: &BTreeMap<String, PathBuf>) -> Option<String> {
        None
    }

    /// True for kinds that write for people what is known of the run, too: what is published of them
    /// then goes through [`Stage::complete`].
    fn completes(&self) -> bool {
        false
    }

    /// Adds to `folder`, the copy of the output that is about to be published, what is known of the
    /// run and is no part of the artifact. Runs in the engine's own process at the end of a run, so it
    /// must be quick; the same facts must give the same files.
    fn complete(&self, _folder: &Path, _facts: &Facts) -> Result<(), StageError> {
        Ok(())
    }

    /// Does the work. Everything it puts into [`StageCtx::out`] becomes the artifact.
    fn run(&self, ctx: &StageCtx) -> Result<(), StageError>;
}

/// A problem with one param, found by [`Stage::check`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParamProblem {
    /// Path of the param below the stage, for example `adapter.rank`.
    pub param: String,
    /// What is wrong.
    pub message: String,
    /// What to write instead.
    pub help: String,
}

/// A reference inside params: `"@stage"`, `"@stage/file.jsonl"`, or a file or folder relative to
/// the manifest (`"./data.jsonl"`).
///
/// In TOML it is a string; in resolved params it is `{"$input": "…"}`, so that the engine finds
/// references without knowing the kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Input(String);

/// The key that marks a resolved reference in JSON params.
pub const INPUT_MARK: &str = "$input";

impl Input {
    /// Wraps a reference as written.
    pub fn new(reference: impl Into<String>) -> Self {
        Self(reference.into())
    }

    /// The reference as written.
    pub fn reference(&self) -> &str {
        &self.0
    }

    /// True when it may stand for several instances of a stage: `@eval[*]`, `@eval[seed=*]`.
    pub fn is_fan_in(&self) -> bool {
        let stage = self.0.split('/').next().unwrap_or_default();
        match (stage.find('['), stage.find(']')) {
            (Some(open), Some(close)) if stage.starts_with('@') && open < close => {
                stage[open..close].contains('*')
            }
            _ => false,
        }
    }
}

impl fmt::Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for Input {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        BTreeMap::from([(INPUT_MARK, &self.0)]).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Input {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Input;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a reference such as \"@stage\", \"@stage/file\" or \"./file\"")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Input, E> {
                Ok(Input(text.to_owned()))
            }
            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Input, A::Error> {
                match map.next_entry::<String, String>()? {
                    Some((key, reference)) if key == INPUT_MARK => Ok(Input(reference)),
                    _ => Err(serde::de::Error::custom("expected a reference")),
                }
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

impl JsonSchema for Input {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Input".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schemars::json_schema!({
            "type": "string",
            "description": "A reference: \"@stage\", \"@stage/file\" or a path beside the manifest such as \"./file\"."
        })
    }
}

/// Several inputs by label. In a manifest a reference such as `"@stage[*]"`, an array of
/// references, or a table of label → reference.
///
/// The engine expands a fan-in reference to every instance it names, labelled by what stands in
/// the instance's brackets (`lora`, or `lora,seed=1`); a single reference is labelled by its
/// stage, or its file. Under a label of its own (`math = "@eval[*]"`) a fan-in is labelled
/// `math/lora`. Until then such entries have keys starting with [`UNEXPANDED`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Inputs(pub BTreeMap<String, Input>);

/// First character of the keys of entries of [`Inputs`] that the engine has yet to expand.
pub const UNEXPANDED: char = '*';

impl<'de> Deserialize<'de> for Inputs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Inputs;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("references: \"@stage[*]\", an array, or a table of label = \"@stage\"")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Inputs, E> {
                let key = UNEXPANDED.to_string();
                Ok(Inputs(BTreeMap::from([(key, Input::new(text))])))
            }
            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut items: A) -> Result<Inputs, A::Error> {
                let mut inputs = BTreeMap::new();
                while let Some(input) = items.next_element::<Input>()? {
                    inputs.insert(format!("{UNEXPANDED}{:06}", inputs.len()), input);
                }
                Ok(Inputs(inputs))
            }
            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Inputs, A::Error> {
                let mut inputs = BTreeMap::new();
                while let Some((label, input)) = map.next_entry::<String, Input>()? {
                    let label = if input.is_fan_in() { format!("{UNEXPANDED}{label}/") } else { label };
                    inputs.insert(label, input);
                }
                Ok(Inputs(inputs))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

impl JsonSchema for Inputs {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Inputs".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let one = generator.subschema_for::<Input>();
        schemars::json_schema!({
            "description": "References: \"@stage[*]\" for every instance of a stage, an array of references, or a table of label = reference.",
            "anyOf": [
                {"type": "string"},
                {"type": "array", "items": one},
                {"type": "object", "additionalProperties": one}
            ]
        })
    }
}

/// Whose fault a failure is; decides retries, the exit code and the advice printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// Wrong input: the manifest, a file's content. Never retried.
    Input,
    /// The machine: no space, no device, no permission. Never retried.
    Environment,
    /// Likely to pass if tried again: a network time-out. Retried as the stage's `retries` says.
    Transient,
    /// The stage was asked to stop and saved its state.
    Stopped,
    /// Our mistake.
    Bug,
}

/// Why a stage failed, with the next step for the user.
#[derive(Debug, Clone, thiserror::Error, Serialize, Deserialize)]
#[error("{message}")]
pub struct StageError {
    /// Whose fault it is.
    pub tier: Tier,
    /// What happened, naming the file and place.
    pub message: String,
    /// What to do about it.
    pub help: Option<String>,
}

impl StageError {
    /// An error of the given tier.
    pub fn new(tier: Tier, message: impl fmt::Display) -> Self {
        Self { tier, message: message.to_string(), help: None }
    }
    /// Wrong input.
    pub fn input(message: impl fmt::Display) -> Self {
        Self::new(Tier::Input, message)
    }
    /// A problem of the machine.
    pub fn environment(message: impl fmt::Display) -> Self {
        Self::new(Tier::Environment, message)
    }
    /// A problem that may pass.
    pub fn transient(message: impl fmt::Display) -> Self {
        Self::new(Tier::Transient, message)
    }
    /// The stage stopped because it was asked to; its state is saved.
    pub fn stopped() -> Self {
        Self::new(Tier::Stopped, "stopped on request; state saved")
    }
    /// Adds the next step.
    pub fn with_help(mut self, help: impl fmt::Display) -> Self {
        self.help = Some(help.to_string());
        self
    }
    /// An I/O error on a path.
    pub fn io(path: &Path, error: std::io::Error) -> Self {
        Self::environment(format!("{}: {error}", path.display()))
    }
}

/// What the lock file holds for one external source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pin {
    /// BLAKE3 digest (hex) of the fetched file or folder.
    pub digest: String,
    /// The resolved revision (a hub commit), when the source has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
}

/// Settings of the run that reach every stage but no key, since they do not change results.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Access {
    /// Only cache and mirrors may be used.
    pub offline: bool,
    /// Source prefix → local folder, tried before the network, longest prefix first.
    pub mirrors: BTreeMap<String, PathBuf>,
}

/// What a running stage sees of the world.
#[derive(Debug, Clone)]
pub struct StageCtx {
    pub(crate) out: PathBuf,
    pub(crate) state: PathBuf,
    pub(crate) inputs: BTreeMap<String, PathBuf>,
    pub(crate) device: String,
    pub(crate) access: Access,
    pub(crate) pins: BTreeMap<String, Pin>,
    pub(crate) events: WorkerEvents,
    pub(crate) stop: Arc<AtomicBool>,
}

impl StageCtx {
    /// A context for tests and for running a kind by hand: no events, never asked to stop.
    /// `inputs` maps references as written to paths.
    pub fn detached(out: &Path, state: &Path, inputs: BTreeMap<String, PathBuf>) -> Self {
        Self {
            out: out.to_owned(),
            state: state.to_owned(),
            inputs,
            device: "cpu".to_owned(),
            access: Access::default(),
            pins: BTreeMap::new(),
            events: WorkerEvents::discard(),
            stop: Arc::default(),
        }
    }

    /// Replaces the access settings (for tests).
    pub fn with_access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }

    /// Replaces the pins (for tests).
    pub fn with_pins(mut self, pins: BTreeMap<String, Pin>) -> Self {
        self.pins = pins;
        self
    }

    /// The folder whose content becomes the artifact. Empty at the start.
    pub fn out(&self) -> &Path {
        &self.out
    }

    /// The folder for resumable state; it survives a kill and is dropped on success.
    pub fn state(&self) -> &Path {
        &self.state
    }

    /// Where a referenced file or folder lies. Read-only.
    pub fn input(&self, input: &Input) -> Result<PathBuf, StageError> {
        self.inputs
            .get(input.reference())
            .cloned()
            .ok_or_else(|| StageError::new(Tier::Bug, format!("input {input} was not materialised")))
    }

    /// The device to use: `cpu` or `cuda:N`.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// Offline flag and mirrors.
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// The pinned digest of a source, if the lock file has one.
    pub fn pin(&self, source: &str) -> Option<&Pin> {
        self.pins.get(source)
    }

    /// Tells the engine what to write into the lock file for a source.
    pub fn set_pin(&self, source: &str, pin: Pin) {
        self.events.send(WorkerEvent::Pinned { source: source.to_owned(), pin });
    }

    /// Reports progress; cheap, may be called often.
    pub fn progress(&self, done: u64, total: u64, unit: &str) {
        self.events.send(WorkerEvent::Progress { done, total, unit: unit.to_owned() });
    }

    /// Reports named values of a step (a training step's loss, reward …).
    pub fn metrics(&self, step: u64, values: BTreeMap<String, f64>) {
        self.events.send(WorkerEvent::Metrics { step, values });
    }

    /// A line for the user.
    pub fn message(&self, text: impl Into<String>) {
        self.events.send(WorkerEvent::Message { text: text.into() });
    }

    /// True once the stage should save its state and return [`StageError::stopped`].
    pub fn stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

type CheckedStage = Box<dyn ErasedStage>;

/// A stage whose type is forgotten: what the engine handles after parsing params.
pub trait ErasedStage: Send + Sync {
    /// See [`Stage::outputs`].
    fn outputs(&self) -> Vec<String>;
    /// See [`Stage::has_more_outputs`].
    fn has_more_outputs(&self) -> bool;
    /// See [`Stage::check`].
    fn check(&self) -> Vec<ParamProblem>;
    /// See [`Stage::environment`].
    fn environment(&self, device_class: &str) -> BTreeMap<String, String>;
    /// See [`Stage::sources`].
    fn sources(&self) -> Vec<String>;
    /// See [`Stage::needs_trust`].
    fn needs_trust(&self) -> bool;
    /// See [`Stage::default_gpus`].
    fn default_gpus(&self) -> u32;
    /// See [`Stage::estimate`].
    fn estimate(&self, inputs: &BTreeMap<String, PathBuf>) -> Option<String>;
    /// Params with defaults filled in; references are `{"$input": …}`.
    fn params(&self) -> Value;
    /// See [`Stage::completes`].
    fn completes(&self) -> bool;
    /// See [`Stage::complete`].
    fn complete(&self, folder: &Path, facts: &Facts) -> Result<(), StageError>;
    /// See [`Stage::run`].
    fn run(&self, ctx: &StageCtx) -> Result<(), StageError>;
}

impl<S: Stage> ErasedStage for S {
    fn outputs(&self) -> Vec<String> {
        Stage::outputs(self)
    }
    fn has_more_outputs(&self) -> bool {
        Stage::has_more_outputs(self)
    }
    fn check(&self) -> Vec<ParamProblem> {
        Stage::check(self)
    }
    fn environment(&self, device_class: &str) -> BTreeMap<String, String> {
        Stage::environment(self, device_class)
    }
    fn sources(&self) -> Vec<String> {
        Stage::sources(self)
    }
    fn needs_trust(&self) -> bool {
        Stage::needs_trust(self)
    }
    fn default_gpus(&self) -> u32 {
        Stage::default_gpus(self)
    }
    fn estimate(&self, inputs: &BTreeMap<String, PathBuf>) -> Option<String> {
        Stage::estimate(self, inputs)
    }
    fn params(&self) -> Value {
        serde_json::to_value(self).expect("params are plain data: maps have string keys")
    }
    fn completes(&self) -> bool {
        Stage::completes(self)
    }
    fn complete(&self, folder: &Path, facts: &Facts) -> Result<(), StageError> {
        Stage::complete(self, folder, facts)
    }
    fn run(&self, ctx: &StageCtx) -> Result<(), StageError> {
        Stage::run(self, ctx)
    }
}

/// One registered kind.
#[derive(Clone, Copy)]
pub struct KindEntry {
    /// Name in manifests.
    pub name: &'static str,
    /// Code version, part of every key of this kind.
    pub version: u32,
    /// JSON Schema of the params, with the doc comments.
    pub schema: fn() -> Schema,
    /// Parses params as a manifest has them; an error names the param it is about.
    pub parse: fn(&Value) -> Result<CheckedStage, ParamProblem>,
    /// Parses resolved JSON params, in the worker.
    pub parse_json: fn(Value) -> Result<CheckedStage, serde_json::Error>,
}

fn parse<S: Stage>(value: &Value) -> Result<CheckedStage, ParamProblem> {
    if let Ok(stage) = S::deserialize(value) {
        return Ok(Box::new(stage));
    }
    // Once more, slower, to learn where it went wrong.
    match serde_path_to_error::deserialize::<_, S>(value) {
        Ok(stage) => Ok(Box::new(stage)),
        Err(error) => {
            let path = error.path().to_string();
            Err(ParamProblem {
                param: if path == "." { String::new() } else { path },
                message: error.into_inner().to_string(),
                help: format!("see `pipeline kinds {}`", S::KIND),
            })
        }
    }
}

/// Every stage kind the binary knows, by name.
#[derive(Clone, Default)]
pub struct Registry {
    kinds: BTreeMap<&'static str, KindEntry>,
}

impl Registry {
    /// An empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a kind.
    pub fn with<S: Stage>(mut self) -> Self {
        let entry = KindEntry {
            name: S::KIND,
            version: S::VERSION,
            schema: || schemars::schema_for!(S),
            parse: parse::<S>,
            parse_json: |value| Ok(Box::new(serde_json::from_value::<S>(value)?)),
        };
        self.kinds.insert(S::KIND, entry);
        self
    }

    /// The kind of that name.
    pub fn get(&self, name: &str) -> Option<&KindEntry> {
        self.kinds.get(name)
    }

    /// All kinds in name order.
    pub fn iter(&self) -> impl Iterator<Item = &KindEntry> {
        self.kinds.values()
    }
}
