//! `pipeline graph`: the DAG as text for a drawing program.

use std::process::ExitCode;

use super::CliError;
use super::common::ManifestArgs;
use crate::graph;
use crate::kind::Registry;
use crate::ui;

/// Arguments of `graph`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    manifest: ManifestArgs,
    /// The language to write.
    #[arg(long, value_enum, default_value_t = Format::Mermaid)]
    format: Format,
    /// One node for each [stage.NAME], however many instances it has.
    #[arg(long)]
    collapse: bool,
}

/// Languages for graphs.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Format {
    /// Graphviz: `pipeline graph FILE --format dot | dot -Tsvg`.
    Dot,
    /// Mermaid, which Markdown viewers draw.
    Mermaid,
}

/// Prints the graph.
pub fn run(args: &Args, registry: &Registry) -> Result<ExitCode, CliError> {
    let plan = args.manifest.load(registry)?;
    let text = match args.format {
        Format::Dot => graph::dot(&plan, args.collapse),
        Format::Mermaid => graph::mermaid(&plan, args.collapse),
    };
    ui::out(text.trim_end());
    Ok(ExitCode::SUCCESS)
}
