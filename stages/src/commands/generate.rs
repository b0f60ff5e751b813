//! `pipeline generate`: tries a checkpoint by hand.

use std::io::{Read, Write};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use engine::cli::{CliError, ExtraCommand};
use lm::generate::{ContextPolicy, Engine, EngineOptions, GenerateError, Generation, Request};
use lm::template::PromptTemplate;
use serde_json::json;

use super::failed;
use super::model::{ModelArgs, from_name};
use crate::model::{OpenModel, PromptParams};
use crate::sampling::Sampling;

/// Generate text from a checkpoint and say how fast.
///
/// Prints each answer, and on stderr the tokens per second. Without --prompt and --file, the prompt
/// is read from standard input.
#[derive(Debug, Parser)]
#[command(name = "generate")]
struct Args {
    #[command(flatten)]
    model: ModelArgs,
    /// The question.
    #[arg(long, conflicts_with = "file")]
    prompt: Vec<String>,
    /// A file of questions, one a line.
    #[arg(long)]
    file: Option<PathBuf>,
    /// How a question becomes a prompt: `chat`, `plain`, or another template of `eval`. By default
    /// `chat` where the model has a chat template, else `plain`.
    #[arg(long, value_parser = from_name::<PromptTemplate>)]
    template: Option<PromptTemplate>,
    /// Most tokens to generate.
    #[arg(long, default_value_t = 512)]
    max_tokens: usize,
    /// Divides the logits; 0 is greedy decoding.
    #[arg(long, default_value_t = 0.0)]
    temperature: f64,
    /// Keep the so many likeliest tokens; 0 keeps all.
    #[arg(long, default_value_t = 0)]
    top_k: usize,
    /// Keep the likeliest tokens whose probabilities reach this sum.
    #[arg(long, default_value_t = 1.0)]
    top_p: f64,
    /// Drop tokens less likely than this share of the likeliest.
    #[arg(long, default_value_t = 0.0)]
    min_p: f64,
    /// Make tokens that are already there less likely; 1 does nothing.
    #[arg(long, default_value_t = 1.0)]
    repetition_penalty: f64,
    /// A string that ends an answer, beside those of the template.
    #[arg(long)]
    stop: Vec<String>,
    /// Generate what fits of --max-tokens where a prompt leaves less of the model's context, instead of
    /// refusing it; how many were cut is said.
    #[arg(long)]
    clip: bool,
    /// Seed of sampling.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Sequences at once, at most.
    #[arg(long, default_value_t = 64)]
    batch: usize,
    /// Print a line of JSON for each answer instead: text, token ids, why it ended, log-probabilities under
    /// the model (`logprobs`) and under the distribution drawn from (`sampling_logprobs`).
    #[arg(long)]
    json: bool,
}

/// The command.
pub fn command() -> ExtraCommand {
    ExtraCommand::new(main)
}

fn main(args: Args) -> Result<ExitCode, CliError> {
    let (out, load) = args.generate()?;
    let mut stdout = std::io::stdout().lock();
    for (index, sample) in out.samples.iter().flatten().enumerate() {
        let written = if args.json {
            let line = json!({
                "prompt": index, "text": sample.text, "ids": sample.ids, "finish": sample.finish,
                "logprobs": sample.model_logprobs, "sampling_logprobs": sample.logprobs,
            });
            writeln!(stdout, "{line}")
        } else {
            writeln!(stdout, "{}", sample.text)
        };
        // Whoever reads the output may stop early.
        if written.is_err() {
            break;
        }
    }
    let statistics = &out.statistics;
    let seconds = statistics.elapsed.as_secs_f64();
    let rate = statistics.generated_tokens as f64 / seconds;
    let _ = writeln!(
        std::io::stderr(),
        "{} prompt and {} new tokens in {seconds:.2} s: {rate:.0} new tokens/s (loaded in {load:.1} s)",
        statistics.prompt_tokens,
        statistics.generated_tokens,
    );
    if statistics.clipped_requests > 0 {
        let _ = writeln!(
            std::io::stderr(),
            "{} of {} prompts left less than {} tokens of the model's context; their answers end with it at the latest",
            statistics.clipped_requests,
            out.samples.len(),
            args.max_tokens,
        );
    }
    Ok(ExitCode::SUCCESS)
}

impl Args {
    fn questions(&self) -> Result<Vec<String>, CliError> {
        if !self.prompt.is_empty() {
            return Ok(self.prompt.clone());
        }
        if let Some(file) = &self.file {
            let text = std::fs::read_to_string(file)
                .map_err(|error| CliError::environment(format!("{}: {error}", file.display())))?;
            // editors on Windows begin a file with a mark that is no text
            let lines = text.trim_start_matches('\u{feff}').lines();
            return Ok(lines.filter(|line| !line.trim().is_empty()).map(str::to_owned).collect());
        }
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map_err(failed)?;
        Ok(vec![text.trim_end().to_owned()])
    }

    /// The answers, and the seconds that loading took.
    fn generate(&self) -> Result<(Generation, f64), CliError> {
        let questions = self.questions()?;
        if questions.iter().all(|question| question.trim().is_empty()) {
            return Err(CliError::usage(
                "there is no question: give --prompt, a --file with a question a line, \
                 or write one to standard input",
            ));
        }
        let begin = std::time::Instant::now();
        let opened = OpenModel::open(&self.model.model).map_err(failed)?;
        let (model, adapter) = self.model.load(&opened.checkpoint)?;
        let fallback = if opened.chat.is_some() { PromptTemplate::Chat } else { PromptTemplate::Plain };
        let template = self.template.unwrap_or(fallback);
        let prompt = PromptParams { template, ..PromptParams::default() };
        let sampling = Sampling {
            temperature: self.temperature,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            repetition_penalty: self.repetition_penalty,
            stop: self.stop.clone(),
            max_new_tokens: self.max_tokens,
            ..Sampling::default()
        };
        let params = sampling.params(opened.stop_tokens(template), template);
        let request = |question: &String| {
            let prepared = prompt.prepare(&opened, question, &[]).map_err(failed)?;
            Ok(Request { prompt: prepared.ids, seeds: vec![self.seed], params: params.clone() })
        };
        let requests = questions.iter().map(request).collect::<Result<Vec<_>, CliError>>()?;
        let load = begin.elapsed().as_secs_f64();
        let context_policy = if self.clip { ContextPolicy::Clip } else { ContextPolicy::Refuse };
        let options = EngineOptions { max_batch: self.batch, context_policy, ..EngineOptions::default() };
        let mut engine = Engine::new(&model, adapter.as_ref(), Some(&opened.tokenizer), options);
        let out = engine.generate(&requests, |_| ControlFlow::Continue(())).map_err(|error| match error {
            GenerateError::Context { .. } => CliError::usage(format!("{error} (--clip)")),
            error if error.is_of_the_request() => CliError::usage(error.to_string()),
            error => failed(error),
        })?;
        Ok((out, load))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::Value;

    use super::*;
    use crate::model::Precision;

    /// The greedy answers of `transformers` (`tests/scripts/tiny_math_generate.py`), from arguments
    /// and from a file of all prompts at once.
    #[test]
    fn answers_are_those_of_transformers() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read(root.join("tests/data/tiny-math-generate.json")).unwrap();
        let cases: Vec<Value> = serde_json::from_slice(&text).unwrap();
        let prompts: Vec<&str> = cases.iter().map(|case| case["prompt"].as_str().unwrap()).collect();
        let model = root.join("../manifests/models/tiny-math");
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("prompts.txt");
        std::fs::write(&file, prompts.join("\n")).unwrap();
        let file = file.to_str().unwrap();
        let common = ["generate", model.to_str().unwrap(), "--device", "cpu", "--template", "plain"];
        let from_arguments: Vec<&str> = prompts.iter().flat_map(|p| ["--prompt", p]).collect();
        for rest in [&from_arguments[..], &["--file", file]] {
            let args = common.iter().chain(&["--max-tokens", "24"]).chain(rest);
            let (out, _) = Args::parse_from(args).generate().unwrap();
            for (samples, case) in out.samples.iter().zip(&cases) {
                assert_eq!(json!(samples[0].ids), case["ids"]);
                assert_eq!(samples[0].text, case["text"].as_str().unwrap());
            }
            assert_eq!(out.samples.len(), cases.len());
        }
    }

    #[test]
    fn a_file_without_a_question_is_refused_with_the_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("prompts.txt");
        for text in ["", "\n \n"] {
            std::fs::write(&file, text).unwrap();
            let args = Args::parse_from(["generate", "nowhere", "--file", file.to_str().unwrap()]);
            let error = args.generate().err().unwrap();
            assert!(error.code() == 2 && error.to_string().contains("--prompt"), "{error}");
        }
    }

    fn tiny() -> String {
        let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests/models/tiny-math");
        model.to_str().unwrap().to_owned()
    }

    /// A file as Windows writes it asks the same questions.
    #[test]
    fn a_mark_at_the_beginning_and_empty_lines_are_no_part_of_questions() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("prompts.txt");
        let model = tiny();
        let answers = |text: &str| {
            std::fs::write(&file, text).unwrap();
            let args = ["generate", &model, "--device", "cpu", "--max-tokens", "8", "--file"];
            let (out, _) = Args::parse_from(args.iter().chain(&[file.to_str().unwrap()])).generate().unwrap();
            out.samples
        };
        let plain = answers("What is 1 + 1?\nWhat is 2 + 2?");
        assert_eq!(plain.len(), 2);
        assert_eq!(answers("\u{feff}What is 1 + 1?\r\n  \r\nWhat is 2 + 2?\r\n"), plain);
    }

    /// What was asked for wrongly is a wrong use; what does not fit is refused, or cut and counted.
    #[test]
    fn requests_that_cannot_be_served_say_what_to_do() {
        let model = tiny();
        let run = |more: &[&str]| {
            let args = ["generate", &model, "--device", "cpu", "--prompt", "hi"];
            Args::parse_from(args.iter().chain(more)).generate()
        };
        for (more, what) in [
            (["--max-tokens", "4000"], "--clip"),
            (["--max-tokens", "0"], "at least 1"),
            (["--top-p", "0"], "top_p"),
            (["--min-p", "1"], "min_p"),
            (["--repetition-penalty", "0"], "repetition_penalty"),
            (["--stop", ""], "stop_strings"),
        ] {
            let error = run(&more).err().unwrap();
            assert!(error.code() == 2 && error.to_string().contains(what), "{error}");
        }
        let (out, _) = run(&["--max-tokens", "4000", "--clip"]).unwrap();
        assert_eq!(out.statistics.clipped_requests, 1);
        let (whole, _) = run(&["--max-tokens", "12"]).unwrap();
        let text = &whole.samples[0][0].text;
        let (before, stop) = text.split_at(text.len() / 2);
        let (cut, _) = run(&["--max-tokens", "12", "--stop", stop]).unwrap();
        assert!(before.starts_with(&cut.samples[0][0].text), "{:?}", cut.samples[0][0].text);
        assert_eq!(cut.samples[0][0].finish, lm::generate::FinishReason::StopString);
    }

    #[test]
    fn names_are_those_of_manifests() {
        assert_eq!(from_name::<PromptTemplate>("qwen-boxed"), Ok(PromptTemplate::QwenBoxed));
        assert!(from_name::<Precision>("f8").unwrap_err().contains("f8"));
    }
}
