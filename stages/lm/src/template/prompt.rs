//! Named prompt templates whose exact bytes published numbers depend on.
//!
//! Sources: `qwen25-math-cot`, `qwen-boxed` and `question-answer` (there `cot`) are
//! `PROMPT_TEMPLATES` of the Qwen2.5-Math evaluation code, with the placement of examples in
//! its `construct_prompt`; `qwen_math` is the steering-reasoning study's.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{ChatTemplate, TemplateError};
use crate::tokenizer::Tokenizer;

const BOXED: &str = "Please reason step by step, and put your final answer within \\boxed{}.";
const GENERIC_MATH: &str =
    "Solve the following math problem. Make sure to put the answer (and only answer) inside \\boxed{}.";
const ASSISTANT: &str = "You are a helpful assistant.";

/// How a question becomes a prompt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PromptTemplate {
    /// The model's own chat template; examples are earlier turns. A template that writes today's
    /// date is told 26 July 2024.
    #[default]
    Chat,
    /// The question as it is; examples come before it, separated by blank lines.
    Plain,
    /// Qwen2.5-Math's evaluation prompt; examples stand inside the one user turn.
    Qwen25MathCot,
    /// A plain system message, the instruction after the question.
    QwenBoxed,
    /// `qwen25-math-cot` where the model has a chat template, else a plain dialogue.
    #[serde(rename = "qwen_math")]
    QwenMath,
    /// `Question: … Answer:`, for base models.
    #[serde(alias = "cot")]
    QuestionAnswer,
    /// ChatML with a generic instruction, as supervised fine-tuning on maths uses it.
    ChatmlSft,
}

/// A worked example before the question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shot {
    /// The example's question.
    pub question: String,
    /// Its worked answer.
    pub answer: String,
}

/// What a template is filled with.
#[derive(Debug, Clone, Copy)]
pub struct Prompt<'a> {
    /// The template.
    pub template: PromptTemplate,
    /// The question.
    pub question: &'a str,
    /// Worked examples, in order.
    pub shots: &'a [Shot],
    /// Replaces the system message, where the template leaves it open (`chat`, `chatml-sft`).
    pub system: Option<&'a str>,
    /// Text that the answer begins with; it stands at the end of the prompt.
    pub prefill: &'a str,
    /// Further variables of the chat template, such as `date_string`.
    pub variables: Option<&'a Map<String, Value>>,
}

impl<'a> Prompt<'a> {
    /// A question without examples.
    pub fn new(template: PromptTemplate, question: &'a str) -> Self {
        Prompt { template, question, shots: &[], system: None, prefill: "", variables: None }
    }

    /// The prompt's text. `chat` is the model's own chat template, if it has one.
    ///
    /// Errors: `chat` without a chat template; a system message where the template fixes it.
    pub fn text(&self, chat: Option<&ChatTemplate>) -> Result<String, TemplateError> {
        self.render(chat, |text| text.to_string())
    }

    /// The prompt's token ids: the template's special tokens as such, special tokens that
    /// question, examples, system message or prefill spell as plain characters.
    ///
    /// A tokenizer that starts every text with a token (Llama 3) gets to do so, unless the
    /// template wrote that token.
    pub fn tokens(
        &self,
        tokenizer: &Tokenizer,
        chat: Option<&ChatTemplate>,
    ) -> Result<Vec<u32>, TemplateError> {
        let mut texts = vec![self.question, self.prefill];
        texts.extend(self.system);
        texts.extend(self.shots.iter().flat_map(|shot| [shot.question.as_str(), shot.answer.as_str()]));
        let guard = tokenizer.guard(&texts)?;
        let rendered = self.render(chat, |text| guard.protect(text))?;
        let ids = guard.encode(&rendered)?;
        // A chat template writes every token that the model wants.
        if self.template == PromptTemplate::Chat || ids.starts_with(tokenizer.prefix()) {
            return Ok(ids);
        }
        Ok([tokenizer.prefix(), &ids].concat())
    }

    fn render(
        &self,
        chat: Option<&ChatTemplate>,
        protect: impl Fn(&str) -> String,
    ) -> Result<String, TemplateError> {
        let question = protect(self.question);
        let shots: Vec<(String, String)> =
            self.shots.iter().map(|shot| (protect(&shot.question), protect(&shot.answer))).collect();
        let system = self.system.map(&protect);
        let open = matches!(self.template, PromptTemplate::Chat | PromptTemplate::ChatmlSft);
        if system.is_some() && !open {
            return Err(self.error("fixes its system message; use `chat` or `chatml-sft` for another"));
        }
        let text = match self.template {
            PromptTemplate::Plain => {
                let before: String = shots.iter().map(|(q, a)| format!("{q}\n{a}\n\n")).collect();
                before + &question
            }
            PromptTemplate::Chat => {
                let chat = chat.ok_or_else(|| {
                    self.error("this model has no chat template; name another prompt template")
                })?;
                let mut messages = Vec::new();
                messages.extend(system.map(|text| json!({"role": "system", "content": text})));
                for (q, a) in &shots {
                    messages.push(json!({"role": "user", "content": q}));
                    messages.push(json!({"role": "assistant", "content": a}));
                }
                messages.push(json!({"role": "user", "content": question}));
                let none = Map::new();
                let variables = self.variables.unwrap_or(&none);
                chat.render_with(&Value::Array(messages), true, variables, &fixed_date())?
            }
            PromptTemplate::Qwen25MathCot => math_cot(&question, &shots),
            PromptTemplate::QwenMath if chat.is_some() => math_cot(&question, &shots),
            PromptTemplate::QwenMath => {
                if !shots.is_empty() {
                    return Err(self.error("takes no examples"));
                }
                // The begin-of-text token, where there is one, is the tokenizer's prefix.
                format!(
                    "A conversation between User and Assistant. The user asks a question, and the \
                     Assistant solves it. {BOXED}\n\nUser: {question} Assistant:"
                )
            }
            PromptTemplate::QwenBoxed => {
                let turn = |q: &str| chatml(ASSISTANT, &format!("{q}\n{BOXED}"));
                let before: String = shots.iter().map(|(q, a)| format!("{}{a}\n\n", turn(q))).collect();
                before + &turn(&question)
            }
            PromptTemplate::QuestionAnswer => {
                let before: String =
                    shots.iter().map(|(q, a)| format!("Question: {q}\nAnswer: {a}\n\n\n")).collect();
                // The published code strips spaces from the whole prompt.
                format!("{before}Question: {question}\nAnswer:").trim_matches(' ').to_string()
            }
            PromptTemplate::ChatmlSft => {
                let user = |q: &str| format!("{GENERIC_MATH}\n\n{q}");
                let system = system.as_deref().unwrap_or(ASSISTANT);
                let mut text = format!("<|im_start|>system\n{system}<|im_end|>\n");
                for (q, a) in &shots {
                    text += &format!("{}{a}<|im_end|>\n", chatml_turn(&user(q)));
                }
                text + &chatml_turn(&user(&question))
            }
        };
        Ok(text + &protect(self.prefill))
    }

    fn error(&self, detail: &str) -> TemplateError {
        TemplateError::Prompt { template: self.template.name(), detail: detail.to_string() }
    }
}

impl PromptTemplate {
    /// All templates, in the order that help shows them.
    pub const ALL: [PromptTemplate; 7] = [
        PromptTemplate::Chat,
        PromptTemplate::Plain,
        PromptTemplate::Qwen25MathCot,
        PromptTemplate::QwenBoxed,
        PromptTemplate::QwenMath,
        PromptTemplate::QuestionAnswer,
        PromptTemplate::ChatmlSft,
    ];

    /// The name in a recipe.
    pub fn name(self) -> &'static str {
        match self {
            PromptTemplate::Chat => "chat",
            PromptTemplate::Plain => "plain",
            PromptTemplate::Qwen25MathCot => "qwen25-math-cot",
            PromptTemplate::QwenBoxed => "qwen-boxed",
            PromptTemplate::QwenMath => "qwen_math",
            PromptTemplate::QuestionAnswer => "question-answer",
            PromptTemplate::ChatmlSft => "chatml-sft",
        }
    }

    /// Texts that end an answer in this template, beside the model's own end tokens.
    pub fn stop_strings(self) -> &'static [&'static str] {
        match self {
            PromptTemplate::QuestionAnswer => &["\n\nQuestion:"],
            _ => &[],
        }
    }

    /// What follows an answer in a training example: the end of the turn, to be encoded with
    /// special tokens. Only its first token is learnt; `None` where the template has none.
    pub fn turn_end(self) -> Option<&'static str> {
        match self {
            PromptTemplate::Qwen25MathCot
            | PromptTemplate::QwenBoxed
            | PromptTemplate::QwenMath
            | PromptTemplate::ChatmlSft => Some("<|im_end|>\n"),
            PromptTemplate::Chat | PromptTemplate::Plain | PromptTemplate::QuestionAnswer => None,
        }
    }

    /// The token that ends a turn: the first of [`PromptTemplate::turn_end`].
    pub fn turn_end_token(self) -> Option<&'static str> {
        self.turn_end().map(str::trim_end)
    }
}

/// What templates that write today's date (Llama 3.2) are told in a recipe, so that a prompt does
/// not depend on the day: the date that those templates write where there is no clock. The
/// variable `date_string` says another.
fn fixed_date() -> jiff::Zoned {
    let noon = jiff::civil::date(2024, 7, 26).at(12, 0, 0, 0);
    noon.to_zoned(jiff::tz::TimeZone::UTC).expect("UTC has every hour of every day")
}

fn math_cot(question: &str, shots: &[(String, String)]) -> String {
    let before: String = shots.iter().map(|(q, a)| format!("{q}\n{a}\n\n")).collect();
    chatml(BOXED, &format!("{before}{question}"))
}

fn chatml(system: &str, user: &str) -> String {
    format!("<|im_start|>system\n{system}<|im_end|>\n{}", chatml_turn(user))
}

fn chatml_turn(user: &str) -> String {
    format!("<|im_start|>user\n{user}<|im_end|>\n<|im_start|>assistant\n")
}
