//! A pipeline program with toy stage kinds, for the engine's tests and benches.

mod kinds;

use std::process::ExitCode;

use clap::Parser;
use engine::cli::{CliError, ExtraCommand, Host, main as pipeline};
use engine::kind::Registry;

/// Say a word again.
#[derive(Parser)]
#[command(name = "echo")]
struct Echo {
    /// The word.
    word: String,
}

fn echo(args: Echo) -> Result<ExitCode, CliError> {
    if args.word.is_empty() {
        return Err(CliError::usage("nothing to say"));
    }
    engine::ui::out(args.word);
    Ok(ExitCode::SUCCESS)
}

fn main() -> ExitCode {
    let registry = Registry::new()
        .with::<kinds::Write>()
        .with::<kinds::Concat>()
        .with::<kinds::Sleep>()
        .with::<kinds::Count>()
        .with::<kinds::Fail>()
        .with::<kinds::Flaky>()
        .with::<kinds::Spawn>()
        .with::<kinds::Pin>()
        .with::<kinds::Device>()
        .with::<kinds::Noisy>()
        .with::<kinds::Tell>();
    // As if the kind's author had changed its code.
    let changed = std::env::var("TOY_WRITE_VERSION").is_ok_and(|version| version == "2");
    let registry = if changed { registry.with::<kinds::NewWrite>() } else { registry };
    pipeline(registry, Host { devices }, vec![ExtraCommand::new(echo)])
}

/// As many GPUs as the test says.
fn devices() -> Vec<String> {
    let count = std::env::var("TOY_GPUS").ok().and_then(|count| count.parse().ok()).unwrap_or(0);
    (0..count).map(|gpu| format!("cuda:{gpu}")).collect()
}
