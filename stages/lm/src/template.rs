//! Prompts: a model's own chat template, and named templates that published results used.
//!
//! - here: [`ChatTemplate`], the Jinja template of a model, rendered as `transformers`'
//!   `apply_chat_template` renders it;
//! - `prompt`: [`PromptTemplate`], the named ones, and how examples are placed in them;
//! - `python`: the few places where Python's and Rust's text functions differ.

mod prompt;
mod python;

use std::path::{Path, PathBuf};

use jiff::Zoned;
use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, ErrorKind, UndefinedBehavior};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

pub use self::prompt::{Prompt, PromptTemplate, Shot};
use crate::checkpoint::{Checkpoint, GgufMetadata, gguf_tokenizer};

/// Steps that a template may take; a hostile one ends with an error instead of never.
const FUEL: u64 = 10_000_000;

/// A template that cannot be read or rendered.
#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    /// A file is missing or damaged.
    #[error("{}: {detail}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        detail: String,
    },
    /// The template is no Jinja that is understood, or refused the messages.
    #[error("{}: {detail}", source_name)]
    Render {
        /// Where the template came from.
        source_name: String,
        /// What it said.
        detail: String,
    },
    /// The prompt asks for what its template cannot give.
    #[error("prompt template `{template}`: {detail}")]
    Prompt {
        /// Name of the template.
        template: &'static str,
        /// What is missing or too much.
        detail: String,
    },
    /// The rendered text cannot be encoded.
    #[error(transparent)]
    Tokenizer(#[from] crate::tokenizer::TokenizerError),
}

impl TemplateError {
    fn file(file: &Path, detail: impl ToString) -> Self {
        TemplateError::File { file: file.to_path_buf(), detail: detail.to_string() }
    }
}

/// One turn of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// `system`, `user`, `assistant` or what else the template knows.
    pub role: String,
    /// The text of the turn.
    pub content: String,
}

impl Message {
    /// A turn.
    pub fn new(role: &str, content: impl Into<String>) -> Self {
        Message { role: role.to_string(), content: content.into() }
    }
}

/// A model's own chat template.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    source: String,
    source_name: String,
    /// `bos_token` and the like, which templates write.
    tokens: Map<String, Value>,
}

impl ChatTemplate {
    /// The chat template of a model, if it has one: `chat_template.jinja`, the one in
    /// `tokenizer_config.json`, or the one in a GGUF file's metadata.
    pub fn for_checkpoint(checkpoint: &Checkpoint) -> Result<Option<Self>, TemplateError> {
        match checkpoint.gguf() {
            None => Self::from_folder(checkpoint.path()),
            Some(metadata) => Self::from_gguf(metadata),
        }
    }

    /// The chat template of a folder, if it has one.
    pub fn from_folder(folder: &Path) -> Result<Option<Self>, TemplateError> {
        let file = folder.join("tokenizer_config.json");
        let config: Map<String, Value> = match std::fs::read_to_string(&file) {
            Ok(text) => serde_json::from_str(&text).map_err(|e| TemplateError::file(&file, e))?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Map::new(),
            Err(error) => return Err(TemplateError::file(&file, error)),
        };
        let own = folder.join("chat_template.jinja");
        let (source, file) = match std::fs::read_to_string(&own) {
            Ok(source) => (source, own),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                match named_default(config.get("chat_template")) {
                    Some(source) => (source.to_string(), file),
                    None => return Ok(None),
                }
            }
            Err(error) => return Err(TemplateError::file(&own, error)),
        };
        Self::new(source, special_tokens(&config), &file.display().to_string()).map(Some)
    }

    fn from_gguf(metadata: &GgufMetadata) -> Result<Option<Self>, TemplateError> {
        let Some(source) = metadata.text("tokenizer.chat_template") else { return Ok(None) };
        let tokens = gguf_tokenizer::special_tokens(metadata);
        Self::new(source.to_string(), tokens, &metadata.file.display().to_string()).map(Some)
    }

    /// A template from its text. `tokens` are variables such as `bos_token`; `source_name` is
    /// named in errors.
    pub fn new(source: String, tokens: Map<String, Value>, source_name: &str) -> Result<Self, TemplateError> {
        let environment = environment();
        let template = ChatTemplate {
            environment,
            source: python::plain_generation_blocks(&source),
            source_name: source_name.to_string(),
            tokens,
        };
        template.environment.template_from_str(&template.source).map_err(|e| template.error(e))?;
        Ok(template)
    }

    /// Whether the template writes today's date unless the variable `date_string` is given.
    pub fn uses_date(&self) -> bool {
        self.source.contains("strftime_now")
    }

    /// Renders a conversation; `add_generation_prompt` opens the assistant's next turn.
    pub fn render(&self, messages: &[Message], add_generation_prompt: bool) -> Result<String, TemplateError> {
        let messages = json!(messages);
        self.render_with(&messages, add_generation_prompt, &Map::new(), &Zoned::now())
    }

    /// Renders with further variables (`tools`, `date_string`), any message fields, and a
    /// given time for `strftime_now`.
    pub fn render_with(
        &self,
        messages: &Value,
        add_generation_prompt: bool,
        variables: &Map<String, Value>,
        now: &Zoned,
    ) -> Result<String, TemplateError> {
        let mut context = self.tokens.clone();
        context.insert("messages".into(), messages.clone());
        context.insert("add_generation_prompt".into(), json!(add_generation_prompt));
        // transformers always defines these two.
        context.insert("tools".into(), Value::Null);
        context.insert("documents".into(), Value::Null);
        context.extend(variables.clone());

        let mut environment = self.environment.clone();
        let now = now.clone();
        environment.add_function("strftime_now", move |format: &str| {
            jiff::fmt::strtime::format(format, &now).map_err(|error| {
                minijinja::Error::new(ErrorKind::InvalidOperation, format!("strftime_now: {error}"))
            })
        });
        environment
            .render_str(&self.source, minijinja::value::Serde(&context))
            .map_err(|error| self.error(error))
    }

    /// The text of a special-token variable (`bos_token`), if the tokenizer has it.
    pub fn token(&self, name: &str) -> Option<&str> {
        self.tokens.get(name)?.as_str()
    }

    fn error(&self, error: minijinja::Error) -> TemplateError {
        let place = error.line().map_or(String::new(), |line| format!(" (line {line})"));
        let detail = format!("chat template{place}: {error}");
        TemplateError::Render { source_name: self.source_name.clone(), detail }
    }
}

/// Jinja as `transformers.utils.chat_template_utils` sets it up.
fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    environment.set_syntax(syntax.expect("the standard delimiters"));
    environment.set_undefined_behavior(UndefinedBehavior::Lenient);
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.set_fuel(Some(FUEL));
    environment.add_function("raise_exception", |message: String| -> Result<String, minijinja::Error> {
        Err(minijinja::Error::new(ErrorKind::InvalidOperation, message))
    });
    // Python cannot iterate over None, which minijinja takes for an empty list: `tools is iterable`.
    environment.add_test("iterable", |value: &minijinja::Value| !value.is_none() && value.try_iter().is_ok());
    environment.add_filter("tojson", python::to_json);
    environment.add_filter("trim", python::trim);
    environment
}

/// A template, or the one called "default" in a list of named ones.
fn named_default(value: Option<&Value>) -> Option<&str> {
    match value? {
        Value::String(text) => Some(text),
        Value::Array(list) => list
            .iter()
            .find(|entry| entry.get("name").and_then(Value::as_str) == Some("default"))?
            .get("template")?
            .as_str(),
        _ => None,
    }
}

/// `bos_token` and the like: a text, or an object that holds it under `content`.
fn special_tokens(config: &Map<String, Value>) -> Map<String, Value> {
    let mut tokens = Map::new();
    for name in ["bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token"] {
        let text = config.get(name).and_then(|v| v.as_str().or_else(|| v.get("content")?.as_str()));
        if let Some(text) = text {
            tokens.insert(name.to_string(), json!(text));
        }
    }
    tokens
}
