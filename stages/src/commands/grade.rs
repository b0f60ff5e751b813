//! `pipeline grade`: grades answers outside a run.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use engine::cli::{CliError, ExtraCommand};
use grader::Summary;
use grader::line::grade_lines;

/// Grade answers by the Qwen2.5-Math rules and by mathematical equality, side by side.
///
/// Each line of FILE is a JSON object with `pred` (an answer) or `text` (a full output), `gold`,
/// and optionally `data_name`. It is printed back, in order, with `extracted`, `method`, `qwen`,
/// `strict` and `reason`. The exit code is 1 if any line could not be read.
#[derive(Debug, Parser)]
#[command(name = "grade")]
struct Args {
    /// The JSON lines; `-` for standard input.
    file: PathBuf,
    /// The Qwen harness's name of the data set, for lines without `data_name`.
    #[arg(long, default_value = "math")]
    data_name: String,
    /// Print counts and the disagreements between the two verdicts instead of the lines.
    #[arg(long)]
    summary: bool,
}

/// The command.
pub fn command() -> ExtraCommand {
    ExtraCommand::new(main)
}

fn main(args: Args) -> Result<ExitCode, CliError> {
    match run(&args) {
        Ok(0) => Ok(ExitCode::SUCCESS),
        Ok(_) => Ok(ExitCode::FAILURE),
        // Whoever reads the output may stop early.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        Err(error) => Err(CliError::environment(format!("{}: {error}", args.file.display()))),
    }
}

/// Grades the file; returns how many lines could not be read.
fn run(args: &Args) -> io::Result<usize> {
    let input: Box<dyn BufRead> = match args.file.as_os_str() == "-" {
        true => Box::new(io::stdin().lock()),
        false => Box::new(BufReader::new(File::open(&args.file)?)),
    };
    let mut summary = Summary::default();
    let bad = if args.summary {
        let bad = grade_lines(input, io::sink(), &args.data_name, &mut summary)?;
        writeln!(io::stdout(), "{summary}")?;
        bad
    } else {
        grade_lines(input, BufWriter::new(io::stdout().lock()), &args.data_name, &mut summary)?
    };
    for line in &bad {
        writeln!(io::stderr(), "{}: {line}", args.file.display())?;
    }
    Ok(bad.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_lines_are_counted_and_good_ones_graded() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("answers.jsonl");
        std::fs::write(&file, "{\"pred\":\"1/2\",\"gold\":\"0.5\"}\nnot json\n").unwrap();
        let args = Args { file, data_name: "math".into(), summary: true };
        assert_eq!(run(&args).unwrap(), 1);
    }
}
