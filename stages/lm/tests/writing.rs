//! Checkpoint folders that are written, read again, and read by `transformers`.

use std::borrow::Cow;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use lm::checkpoint::{Checkpoint, CheckpointError, TensorSpec, WriteOptions, write_folder};
use lm::config::{Architecture, FloatType, ModelConfig};
use lm::template::{ChatTemplate, Message};
use lm::tokenizer::Tokenizer;
use serde_json::json;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

fn variants() -> Vec<PathBuf> {
    let list = fs::read_dir(fixtures().join("tiny")).unwrap();
    list.map(|entry| entry.unwrap().path()).collect()
}

/// Gives the bytes of a tensor that is to be written.
type Values<'a> = &'a dyn Fn(&TensorSpec) -> Result<Cow<'static, [u8]>, CheckpointError>;

fn options(max_shard_bytes: u64) -> WriteOptions<'static> {
    WriteOptions { max_shard_bytes, ..WriteOptions::default() }
}

/// Writes an opened checkpoint in a number format.
fn convert(source: &Checkpoint, folder: &Path, dtype: FloatType, options: &WriteOptions) {
    let specs = TensorSpec::all(source.config(), dtype);
    write_folder(folder, source.config(), &specs, options, |spec| source.bytes(&spec.name, spec.dtype))
        .unwrap();
}

/// Names in a folder, sorted.
fn list(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = names.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn what_is_written_is_read() {
    for source in variants() {
        let source = Checkpoint::open(&source).unwrap();
        let dtype = source.info("model.norm.weight").unwrap().1;
        for limit in [u64::MAX, 5000] {
            let parent = tempfile::tempdir().unwrap();
            let folder = parent.path().join("new/model");
            convert(&source, &folder, dtype, &options(limit));
            let found = Checkpoint::open(&folder).unwrap();
            found.check_complete(&found.config().tensor_shapes()).unwrap();
            assert!(found.names().eq(source.names()));
            for name in source.names() {
                let (a, b) = (found.tensor(name).unwrap(), source.tensor(name).unwrap());
                assert_eq!((a.dtype, &a.shape, &a.bytes), (b.dtype, &b.shape, &b.bytes), "{name}");
            }
            let strip = |config: &ModelConfig| ModelConfig { json: Default::default(), ..config.clone() };
            assert_eq!(strip(found.config()), strip(source.config()));
            let names = list(&folder);
            let index = names.contains(&"model.safetensors.index.json".to_string());
            assert_eq!(index, limit == 5000, "{names:?}");
            assert_eq!(names.contains(&"model.safetensors".to_string()), !index);
            // Nothing else is left beside the folder.
            assert_eq!(list(folder.parent().unwrap()), ["model"]);
        }
    }
}

#[test]
fn shards_stay_below_their_limit() {
    let source = Checkpoint::open(&fixtures().join("tiny/llama-gqa")).unwrap();
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("model");
    convert(&source, &folder, FloatType::F32, &options(6000));
    let files: Vec<_> = list(&folder).into_iter().filter(|name| name.ends_with(".safetensors")).collect();
    assert!(files.len() > 3);
    for (number, name) in files.iter().enumerate() {
        assert_eq!(*name, format!("model-{:05}-of-{:05}.safetensors", number + 1, files.len()));
        // Tensors and the header.
        assert!(fs::metadata(folder.join(name)).unwrap().len() < 6000 + 2000);
    }
    let index: serde_json::Value =
        serde_json::from_slice(&fs::read(folder.join("model.safetensors.index.json")).unwrap()).unwrap();
    let total: u64 = source.names().map(|name| source.tensor(name).unwrap().bytes.len() as u64).sum();
    assert_eq!(index["metadata"]["total_size"], json!(total));
}

#[test]
fn tokenizer_files_are_carried_along() {
    let model = tempfile::tempdir().unwrap();
    for name in ["config.json", "model.safetensors", "generation_config.json"] {
        fs::copy(fixtures().join("tiny/llama-gqa").join(name), model.path().join(name)).unwrap();
    }
    fs::copy(fixtures().join("tokenizers/qwen2.json"), model.path().join("tokenizer.json")).unwrap();
    fs::write(model.path().join("chat_template.jinja"), "{{ messages[0].content }}").unwrap();
    fs::write(model.path().join("optimizer.pt"), "not this").unwrap();
    let source = Checkpoint::open(model.path()).unwrap();
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("model");
    let eos = json!({"eos_token_id": [151645, 151643]});
    let generation = eos.as_object();
    convert(
        &source,
        &folder,
        FloatType::BF16,
        &WriteOptions { generation_config: generation, source: Some(&source), ..options(1 << 30) },
    );
    assert_eq!(
        list(&folder),
        [
            "chat_template.jinja",
            "config.json",
            "generation_config.json",
            "model.safetensors",
            "tokenizer.json"
        ]
    );
    let found = Checkpoint::open(&folder).unwrap();
    assert_eq!(found.generation_config().unwrap().eos_token_ids, [151645, 151643]);
    assert_eq!(found.config().dtype, Some(FloatType::BF16));
    Tokenizer::for_checkpoint(&found).unwrap();
}

#[test]
fn a_gguf_file_becomes_a_folder() {
    let source = Checkpoint::open(&fixtures().join("gguf/llama.gguf")).unwrap();
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("model");
    convert(&source, &folder, FloatType::F32, &WriteOptions { source: Some(&source), ..options(1 << 30) });
    let found = Checkpoint::open(&folder).unwrap();
    let original = Checkpoint::open(&fixtures().join("tiny/llama-attention-bias")).unwrap();
    for name in original.names() {
        assert_eq!(found.tensor(name).unwrap().bytes, original.tensor(name).unwrap().bytes, "{name}");
    }
    let (a, b) = (Tokenizer::for_checkpoint(&found).unwrap(), Tokenizer::for_checkpoint(&source).unwrap());
    let text = "Été 12345 <|im_end|>";
    assert_eq!(a.encode_with_specials(text).unwrap(), b.encode_with_specials(text).unwrap());
    assert_eq!((a.prefix(), a.prefix().len()), (b.prefix(), 1));
    let chat = ChatTemplate::for_checkpoint(&found).unwrap().unwrap();
    let text = chat.render(&[Message::new("user", "hi")], true).unwrap();
    assert_eq!(text, "<|begin_of_text|>hi<|im_end|>");
    assert_eq!(found.generation_config().unwrap().eos_token_ids, source.config().eos_token_ids);
}

#[test]
fn nothing_half_written_is_left() {
    let source = Checkpoint::open(&fixtures().join("tiny/qwen2-tied")).unwrap();
    let config = source.config();
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("model");
    let specs = TensorSpec::all(config, FloatType::F32);
    let attempt = |specs: &[TensorSpec], values: Values| {
        let error = write_folder(&folder, config, specs, &options(1 << 30), values).unwrap_err().to_string();
        assert!(list(parent.path()).is_empty(), "{:?}", list(parent.path()));
        error
    };
    let none = |_: &TensorSpec| Ok(Cow::Borrowed(&[][..]));
    let error = attempt(&specs, &none);
    assert!(
        error.contains("`model.embed_tokens.weight` is given as 0 bytes") && error.contains("takes 4096"),
        "{error}"
    );
    let error = attempt(&specs, &|spec| Err(CheckpointError::values(&spec.name, "the device is gone")));
    assert!(error.contains("the device is gone"), "{error}");
    assert!(attempt(&specs[1..], &none).contains("missing: model.embed_tokens.weight"));
    let twice = [&specs[..], &specs[..1]].concat();
    assert!(attempt(&twice, &none).contains("is given twice"));
    // A tied model has no head of its own.
    let mut headed = specs.clone();
    headed.push(TensorSpec { name: "lm_head.weight".into(), dtype: FloatType::F32, shape: vec![64, 16] });
    assert!(attempt(&headed, &none).contains("no place in the model"));
    let mut reshaped = specs.clone();
    reshaped[0].shape = vec![16, 64];
    assert!(
        attempt(&reshaped, &none).contains("has shape [16, 64], but the configuration calls for [64, 16]")
    );

    // Nothing is overwritten; an empty folder that waits is filled.
    fs::create_dir(&folder).unwrap();
    convert(&source, &folder, FloatType::F32, &options(1 << 30));
    let again = write_folder(&folder, config, &specs, &options(1 << 30), none).unwrap_err().to_string();
    assert!(again.contains("is not empty"), "{again}");
    Checkpoint::open(&folder).unwrap();
}

/// `transformers` loads what is written and computes the same logits. Needs a Python with
/// transformers, named by LM_REFERENCE_PYTHON; passes without doing anything otherwise.
#[test]
fn transformers_agrees() {
    let Ok(python) = std::env::var("LM_REFERENCE_PYTHON") else { return };
    let mut pairs = Vec::new();
    let mut same = |written: &Path, original: Option<&Path>| {
        let original = original.map_or(String::new(), |path| format!("={}", path.display()));
        pairs.push(format!("{}{original}", written.display()));
    };
    let parent = tempfile::tempdir().unwrap();
    for (number, path) in variants().iter().enumerate() {
        let source = Checkpoint::open(path).unwrap();
        let folder = parent.path().join(number.to_string());
        let dtype = source.info("model.norm.weight").unwrap().1;
        convert(&source, &folder, dtype, &options(if number % 2 == 0 { 5000 } else { 1 << 30 }));
        same(&folder, Some(path));
    }
    for name in ["llama.gguf", "qwen2.gguf", "quantised.gguf"] {
        let source = Checkpoint::open(&fixtures().join("gguf").join(name)).unwrap();
        let folder = parent.path().join(name.replace('.', "-"));
        convert(
            &source,
            &folder,
            FloatType::F32,
            &WriteOptions { source: Some(&source), ..options(1 << 30) },
        );
        same(&folder, None);
    }
    // Qwen2 as a Llama with all its biases: the same function while the new ones are zero.
    let path = fixtures().join("tiny/qwen2-untied");
    let source = Checkpoint::open(&path).unwrap();
    let mut config = source.config().clone();
    config.architecture = Architecture::Llama;
    (config.o_bias, config.mlp_bias) = (true, true);
    let folder = parent.path().join("llama");
    let specs = TensorSpec::all(&config, FloatType::F32);
    let zeros = |spec: &TensorSpec| Cow::Owned(vec![0; spec.shape.iter().product::<usize>() * 4]);
    write_folder(&folder, &config, &specs, &options(1 << 30), |spec| match source.info(&spec.name) {
        Some(_) => source.bytes(&spec.name, spec.dtype),
        None => Ok(zeros(spec)),
    })
    .unwrap();
    same(&folder, Some(&path));

    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts/reload.py");
    let run = Command::new(&python).arg(&script).args(&pairs).output().unwrap();
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(
        run.status.success() && run.stdout.ends_with(format!("same {}\n", pairs.len()).as_bytes()),
        "{said}"
    );
}
