//! `pipeline logits`: a model's logits, for checking one implementation against another.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
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

/// Refuses an output that would overwrite what is read: anything in the folder of the model or the
/// adapter, the model's own file, the ids.
fn check_out(args: &Args) -> Result<(), CliError> {
    let out = &args.out;
    if out.is_dir() {
        return Err(CliError::usage(format!("--out {} is a folder; name a file", out.display())));
    }
    // an existing file where links lead, else the place where it would come to be
    let real = out.canonicalize().or_else(|_| {
        let parent = out.parent().filter(|parent| !parent.as_os_str().is_empty());
        Ok::<_, io::Error>(
            parent.unwrap_or(Path::new(".")).canonicalize()?.join(out.file_name().unwrap_or_default()),
        )
    });
    let real = real.map_err(|error| CliError::environment(format!("{}: {error}", out.display())))?;
    for read in args.model.places().chain([args.ids.as_path()]) {
        // what is not there is reported when it is opened
        if read.canonicalize().is_ok_and(|read| real.starts_with(read)) {
            return Err(CliError::usage(format!(
                "--out {} would change {}, which is read; name a file elsewhere",
                out.display(),
                read.display()
            )));
        }
    }
    Ok(())
}

/// Writes the file with the mode that new files have here; `serialize_to_file` alone leaves it to its
/// owner only. What stood there stays until the new one is whole.
fn write(out: &Path, logits: TensorView) -> io::Result<()> {
    let name = out.file_name().unwrap_or_default().to_string_lossy();
    let part = out.with_file_name(format!(".{name}.{}.part", std::process::id()));
    let written = File::create(&part).and_then(|file| {
        let mode = file.metadata()?.permissions();
        serialize_to_file([("logits", logits)], None, &part).map_err(io::Error::other)?;
        fs::set_permissions(&part, mode)?;
        fs::rename(&part, out)
    });
    if written.is_err() {
        let _ = fs::remove_file(&part);
    }
    written
}

fn main(args: Args) -> Result<ExitCode, CliError> {
    check_out(&args)?;
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
    let context = checkpoint.config().max_position_embeddings;
    for (index, row) in rows.iter().enumerate() {
        if row.len() > context {
            return Err(CliError::usage(format!(
                "{path}: row {index} has {} ids, but the model's context is {context} tokens; shorten it",
                row.len()
            )));
        }
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
    write(&args.out, view).map_err(|error| failed(format!("{}: {error}", args.out.display())))?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

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
        let text = fs::read(folder.join("config.json")).unwrap();
        let config: serde_json::Value = serde_json::from_slice(&text).unwrap();
        let context = config["max_position_embeddings"].as_u64().unwrap() as usize;
        let long = serde_json::json!([[1], vec![1; context + 1]]).to_string();
        let cases = cases.into_iter().chain([(long.as_str(), "row 1 has")]);
        for (ids, what) in cases {
            let error = run(&folder, ids).unwrap_err();
            assert_eq!(error.code(), 2, "{ids}");
            assert!(error.to_string().contains(what), "{ids}: {error}");
        }
    }

    /// Whatever is read stays as it is, also through links; what is written has the mode of any new file.
    #[test]
    fn the_output_replaces_nothing_that_is_read() {
        let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("lm/tests/fixtures/tiny/llama-gqa");
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir(at("model")).unwrap();
        for item in fs::read_dir(&fixture).unwrap() {
            let item = item.unwrap();
            fs::copy(item.path(), at("model").join(item.file_name())).unwrap();
        }
        fs::write(at("ids.json"), "[[1, 2]]").unwrap();
        std::os::unix::fs::symlink(at("model"), at("link")).unwrap();
        std::os::unix::fs::symlink(at("model/model.safetensors"), at("file")).unwrap();
        let before = fs::read(at("model/model.safetensors")).unwrap();
        let run = |out: &str| {
            let paths = [at("model"), at("ids.json"), at(out)].map(|p| p.to_str().unwrap().to_owned());
            let args = ["logits", &paths[0], "--ids", &paths[1], "--out", &paths[2], "--device", "cpu"];
            main(Args::parse_from(args))
        };
        for out in
            ["model/model.safetensors", "model/new", "link/model.safetensors", "file", "ids.json", "model"]
        {
            let error = run(out).unwrap_err();
            assert_eq!(error.code(), 2, "{out}: {error}");
            assert!(error.to_string().contains("--out"), "{out}: {error}");
        }
        assert_eq!(fs::read(at("model/model.safetensors")).unwrap(), before);
        assert!(!at("model/new").exists());

        run("out.safetensors").unwrap();
        let mode = |name: &str| fs::metadata(at(name)).unwrap().permissions().mode();
        assert_eq!(mode("out.safetensors"), mode("ids.json"));
        let left: Vec<_> = fs::read_dir(dir.path()).unwrap().flatten().map(|item| item.file_name()).collect();
        assert_eq!(left.len(), 5, "{left:?}");
    }
}
