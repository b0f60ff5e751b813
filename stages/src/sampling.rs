//! How tokens are chosen, as manifests write it.

use engine::kind::ParamProblem;
use lm::generate::SamplingParams;
use lm::template::PromptTemplate;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How tokens are chosen and when a text ends. What is written here wins over the model's own
/// `generation_config.json`, of which only the end-of-text tokens are used.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Sampling {
    /// Divides the logits; 0 is greedy decoding.
    pub temperature: f64,
    /// Keep the so many likeliest tokens; 0 keeps all.
    pub top_k: usize,
    /// Keep the likeliest tokens whose probabilities reach this sum; 1 keeps all.
    pub top_p: f64,
    /// Drop tokens less likely than this share of the likeliest; 0 drops none.
    pub min_p: f64,
    /// Make tokens already present less likely; 1 does nothing.
    pub repetition_penalty: f64,
    /// Most tokens to generate.
    pub max_new_tokens: usize,
    /// Strings that end the text, beside those of the prompt template.
    pub stop: Vec<String>,
    /// Token ids that end the text, instead of the model's own.
    pub stop_token_ids: Option<Vec<u32>>,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            max_new_tokens: 512,
            stop: Vec::new(),
            stop_token_ids: None,
        }
    }
}

impl Sampling {
    /// The engine's params, with the model's end-of-text tokens and the template's stop strings.
    pub fn params(&self, model_stops: Vec<u32>, template: PromptTemplate) -> SamplingParams {
        let strings = template.stop_strings().iter().map(|stop| (*stop).to_owned());
        SamplingParams {
            temperature: self.temperature as f32,
            top_k: self.top_k,
            top_p: self.top_p as f32,
            min_p: self.min_p as f32,
            repetition_penalty: self.repetition_penalty as f32,
            max_tokens: self.max_new_tokens,
            stop_token_ids: self.stop_token_ids.clone().unwrap_or(model_stops),
            stop_strings: strings.chain(self.stop.iter().cloned()).collect(),
        }
    }

    /// Values out of range; `param` is where these params stand.
    pub fn check(&self, param: &str) -> Vec<ParamProblem> {
        // as the engine takes them
        let [temperature, top_p, min_p, penalty] =
            [self.temperature, self.top_p, self.min_p, self.repetition_penalty].map(|value| value as f32);
        let warm = temperature >= 1e-6 && temperature.is_finite();
        let rules = [
            ("temperature", temperature == 0.0 || warm, "0 (greedy) or a number from 0.000001"),
            ("top_p", top_p > 0.0 && top_p <= 1.0, "a number above 0 and up to 1"),
            ("min_p", (0.0..1.0).contains(&min_p), "a number from 0 to below 1"),
            ("repetition_penalty", penalty > 0.0 && penalty.is_finite(), "a positive number; 1 does nothing"),
            ("max_new_tokens", self.max_new_tokens > 0, "1 or more"),
            ("stop", self.stop.iter().all(|stop| !stop.is_empty()), "strings of at least one character"),
        ];
        let wrong = rules.into_iter().filter(|(_, fine, _)| !fine);
        wrong
            .map(|(name, _, expected)| ParamProblem {
                param: format!("{param}.{name}"),
                message: format!("`{name}` is out of range"),
                help: format!("write {expected}"),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_out_of_range_is_named() {
        let wrong = Sampling {
            temperature: -1.0,
            top_p: 0.0,
            min_p: 1.0,
            repetition_penalty: 0.0,
            max_new_tokens: 0,
            stop: vec![String::new()],
            ..Sampling::default()
        };
        let params: Vec<String> = wrong.check("s").into_iter().map(|problem| problem.param).collect();
        let expected = ["temperature", "top_p", "min_p", "repetition_penalty", "max_new_tokens", "stop"];
        assert_eq!(params, expected.map(|name| format!("s.{name}")));
        assert!(Sampling::default().check("s").is_empty());
        // what f32 cannot hold
        let wrong = Sampling {
            temperature: 1e-39,
            top_p: 1e-60,
            min_p: 1.0 - 1e-12,
            repetition_penalty: f64::INFINITY,
            ..Sampling::default()
        };
        assert_eq!(wrong.check("s").len(), 4);
    }

    #[test]
    fn the_recipe_wins_over_the_model_and_adds_to_the_template() {
        let recipe = Sampling { stop: vec!["END".into()], ..Sampling::default() };
        let params = recipe.params(vec![7], PromptTemplate::QuestionAnswer);
        assert_eq!(params.stop_token_ids, [7]);
        assert!(params.stop_strings.contains(&"END".to_owned()) && params.stop_strings.len() > 1);
        let own = Sampling { stop_token_ids: Some(vec![]), ..Sampling::default() };
        assert!(own.params(vec![7], PromptTemplate::Plain).stop_token_ids.is_empty());
    }
}
