//! `pipeline logits`: a model's logits, for checking one implementation against another.

use std::path::PathBuf;
use std::process::ExitCode;

use burn::tensor::{DType, Int, Tensor, TensorData};
use clap::Parser;
use engine::cli::{CliError, ExtraCommand};
use lm::checkpoint::Checkpoint;
use safetensors::tensor::{Dtype, TensorView, serialize_to_file};

use super::failed;
use super::model::ModelArgs;

/// Write a model's logits for given token ids.
///
/// OUT becomes a safetensors file with the tensor `logits` `[batch, seq, vocab]` in f32. Rows of
/// different lengths are padded on the right; the logits of padding are zero.
#[derive(Debug, Parser)]
#[command(name = "logits")]
struct Args {
    #[command(flatten)]
    model: ModelArgs,
    /// Token ids: JSON, a list of lists.
    #[arg(long)]
    ids: PathBuf,
    /// The file to write.
    #[arg(long)]
    out: PathBuf,
}

/// The command.
pub fn command() -> ExtraCommand {
    ExtraCommand::new(main)
}

fn main(args: Args) -> Result<ExitCode, CliError> {
    let text = std::fs::read(&args.ids)
        .map_err(|error| CliError::environment(format!("{}: {error}", args.ids.display())))?;
    let path = args.ids.display();
    let rows: Vec<Vec<u32>> = serde_json::from_slice(&text).map_err(|error| {
        CliError::usage(format!("{path}: {error}; give a list of lists of token ids, as in [[1, 2], [3]]"))
    })?;
    if rows.iter().all(Vec::is_empty) {
        return Err(CliError::usage(format!("{path}: there is no token id in it, as in [[1, 2], [3]]")));
    }
    let checkpoint = Checkpoint::open(&args.model.model).map_err(failed)?;
    let vocab = checkpoint.config().vocab_size;
    for (index, row) in rows.iter().enumerate() {
        if let Some(id) = row.iter().find(|&&id| id as usize >= vocab) {
            return Err(CliError::usage(format!(
                "{path}: row {index} holds id {id}, but the model has {vocab} tokens; are the ids another tokenizer's?"
            )));
        }
    }
    let (model, adapter) = args.model.load(&checkpoint)?;
    let device = model.device();
    let longest = rows.iter().map(Vec::len).max().unwrap_or(0);
    let mut bytes = Vec::with_capacity(rows.len() * longest * vocab * 4);
    // Row by row: what is next to a row does not matter, and the logits of one are many.
    for row in rows.iter() {
        let end = bytes.len() + longest * vocab * 4;
        if !row.is_empty() {
            let ids: Vec<i32> = row.iter().map(|&id| id as i32).collect();
            let data = TensorData::new(ids, [1, row.len()]);
            let ids = Tensor::<2, Int>::from_data(data, (&device, DType::I32));
            let logits = model.forward(ids, adapter.as_ref()).into_data();
            let values: Vec<f32> = logits.try_to_vec().map_err(|e| failed(format!("{e:?}")))?;
            bytes.extend(values.iter().flat_map(|v| v.to_le_bytes()));
        }
        bytes.resize(end, 0);
    }
    let view = TensorView::new(Dtype::F32, vec![rows.len(), longest, vocab], &bytes).map_err(failed)?;
    serialize_to_file([("logits", view)], None, &args.out).map_err(failed)?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use safetensors::SafeTensors;

    use super::*;

    fn run(model: &Path, ids: &str) -> Result<(Vec<usize>, Vec<f32>), CliError> {
        let dir = tempfile::tempdir().unwrap();
        let (input, out) = (dir.path().join("ids.json"), dir.path().join("out.safetensors"));
        std::fs::write(&input, ids).unwrap();
        let paths = [model, &input, &out].map(|p| p.to_str().unwrap());
        let args = ["logits", paths[0], "--ids", paths[1], "--out", paths[2], "--device", "cpu"];
        main(Args::parse_from(args))?;
        let bytes = std::fs::read(&out).unwrap();
        Ok(values(&bytes))
    }

    fn values(bytes: &[u8]) -> (Vec<usize>, Vec<f32>) {
        let tensors = SafeTensors::deserialize(bytes).unwrap();
        let logits = tensors.tensor("logits").unwrap();
        let numbers = logits.data().as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b));
        (logits.shape().to_vec(), numbers.collect())
    }

    /// The logits of `transformers` (`stages/lm/tests/scripts/tiny_models.py`), to 1e-4; a row that
    /// is shorter is padded with zeros and leaves the others as they are.
    #[test]
    fn logits_are_those_of_transformers() {
        for name in ["qwen2-tied", "llama-gqa"] {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("lm/tests/fixtures/tiny").join(name);
            let expected: serde_json::Value =
                serde_json::from_slice(&std::fs::read(folder.join("expected.json")).unwrap()).unwrap();
            let bytes = std::fs::read(folder.join("expected.safetensors")).unwrap();
            let (shape, want) = values(&bytes);
            let mut ids = expected["input_ids"].clone();
            let (have_shape, have) = run(&folder, &ids.to_string()).unwrap();
            assert_eq!(have_shape, shape);
            let close = |a: &[f32], b: &[f32]| a.iter().zip(b).all(|(x, y)| (x - y).abs() < 1e-4);
            assert!(close(&have, &want), "{name}");

            ids.as_array_mut().unwrap().push(serde_json::json!([1, 2]));
            let (longer, more) = run(&folder, &ids.to_string()).unwrap();
            assert_eq!(longer, [shape[0] + 1, shape[1], shape[2]]);
            assert!(close(&more[..want.len()], &want));
            let (row, padding) = more[want.len()..].split_at(2 * shape[2]);
            assert!(row.iter().any(|v| *v != 0.0) && padding.iter().all(|v| *v == 0.0));
        }
    }

    #[test]
    fn ids_that_no_logits_can_be_of_are_refused_with_the_remedy() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("lm/tests/fixtures/tiny/llama-gqa");
        let cases = [
            ("[[1], [2, 4000000]]", "row 1 holds id 4000000"),
            ("[[1, -2]]", "give a list of lists"),
            ("[1, 2]", "give a list of lists"),
            ("[[], []]", "no token id"),
            ("", "give a list of lists"),
        ];
        for (ids, what) in cases {
            let error = run(&folder, ids).unwrap_err();
            assert_eq!(error.code(), 2, "{ids}");
            assert!(error.to_string().contains(what), "{ids}: {error}");
        }
    }
}
