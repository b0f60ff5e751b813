//! Demonstrations: a question and the answer that is learnt from it, as tokens.

use engine::kind::StageError;
use lm::template::PromptTemplate;
use trainer::data::Sequence;

use crate::model::{OpenModel, PromptParams};
use crate::questions::Question;

/// Where the kind `reference` leaves log-probabilities, and the kind `train` finds them.
pub const REFERENCE_FILE: &str = "reference.safetensors";

/// A prompt and its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Demonstration {
    /// Token ids of the prompt.
    pub prompt: Vec<u32>,
    /// Token ids of the answer, with the token that ends it.
    pub answer: Vec<u32>,
}

impl Demonstration {
    /// Tokens of both.
    pub fn tokens(&self) -> usize {
        self.prompt.len() + self.answer.len()
    }
}

/// Makes demonstrations for one model and one way of asking.
pub struct Demonstrator<'a> {
    model: &'a OpenModel,
    prompt: &'a PromptParams,
    end: u32,
}

impl<'a> Demonstrator<'a> {
    /// Errors: a model that names no token that ends a text.
    pub fn new(model: &'a OpenModel, prompt: &'a PromptParams) -> Result<Self, StageError> {
        Ok(Self { model, prompt, end: model.turn_end(prompt.template)? })
    }

    /// The prompt of a question and its worked solution, ended by the token that ends a turn. Special
    /// tokens that either spells are plain characters.
    pub fn make(&self, question: &str, solution: &str) -> Result<Demonstration, StageError> {
        let prompt = self.prompt.prepare(self.model, question, &[])?.ids;
        let text = format!("{}{solution}", separator(self.prompt.template));
        let mut answer = self.model.tokenizer.encode(&text).map_err(StageError::input)?;
        answer.push(self.end);
        Ok(Demonstration { prompt, answer })
    }
}

/// A prompt and the worked solution, ended by the token that ends a turn.
pub fn sequence(demonstrator: &Demonstrator, row: &Question) -> Result<Sequence, StageError> {
    let solution = row.solution.as_deref().unwrap_or(&row.gold);
    let made = demonstrator.make(&row.problem, solution)?;
    Ok(Sequence::completion(&made.prompt, &made.answer))
}

/// The sequences of rows, in their order.
pub fn sequences(
    model: &OpenModel,
    prompt: &PromptParams,
    rows: &[Question],
) -> Result<Vec<Sequence>, StageError> {
    let demonstrator = Demonstrator::new(model, prompt)?;
    rows.iter().map(|row| sequence(&demonstrator, row)).collect()
}

/// What stands between a prompt and its answer: templates of plain text end at a word.
fn separator(template: PromptTemplate) -> &'static str {
    match template {
        PromptTemplate::QuestionAnswer => " ",
        PromptTemplate::Plain => "\n",
        _ => "",
    }
}
