//! Reading checkpoints: what is there is found, what is damaged is named.

use std::fs;
use std::path::{Path, PathBuf};

use burn::tensor::{DType, Device};
use half::{bf16, f16};
use lm::checkpoint::{Checkpoint, CheckpointError};
use lm::config::{Architecture, FloatType, RopeScaling};
use lm::model::{Model, logits_by_layer};
use proptest::prelude::*;
use safetensors::SafeTensors;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

fn tiny(name: &str) -> PathBuf {
    fixtures().join("tiny").join(name)
}

fn variants() -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(fixtures().join("tiny"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
}

/// A copy of a tiny checkpoint that may be damaged.
fn copy(name: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(tiny(name)).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
    }
    folder
}

/// Replaces the header of a safetensors file; the data stays.
fn rewrite_header(file: &Path, edit: impl FnOnce(&mut serde_json::Map<String, serde_json::Value>)) {
    let bytes = fs::read(file).unwrap();
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let mut header = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
    edit(&mut header);
    let header = serde_json::to_vec(&header).unwrap();
    let mut out = (header.len() as u64).to_le_bytes().to_vec();
    out.extend(&header);
    out.extend(&bytes[8 + length..]);
    fs::write(file, out).unwrap();
}

/// Why a checkpoint loads neither as a whole nor layer by layer.
fn fails(folder: &Path) -> String {
    let (cpu, ids) = (Device::flex(), [vec![1, 2]]);
    let load = |whole: bool| {
        let checkpoint = Checkpoint::open(folder)?;
        match whole {
            true => Model::load(&checkpoint, &cpu, DType::F32).map(drop),
            false => logits_by_layer(&checkpoint, None, &ids, &cpu).map(drop),
        }
    };
    let errors = [true, false].map(|whole| load(whole).expect_err("a damaged checkpoint was accepted"));
    let [whole, by_layer] = errors.map(|error: CheckpointError| error.to_string());
    assert_eq!(whole, by_layer);
    whole
}

#[test]
fn every_variant_is_complete() {
    assert_eq!(variants().len(), 13);
    for name in variants() {
        let checkpoint = Checkpoint::open(&tiny(&name)).unwrap();
        checkpoint.check_complete(&checkpoint.config().tensor_shapes()).unwrap();
    }
}

#[test]
fn values_are_those_of_the_file() {
    let checkpoint = Checkpoint::open(&tiny("llama-gqa")).unwrap();
    let bytes = fs::read(tiny("llama-gqa").join("model.safetensors")).unwrap();
    let reference = SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(checkpoint.names().count(), reference.len());
    for (name, view) in reference.iter() {
        let found = checkpoint.tensor(name).unwrap();
        assert_eq!((found.shape.as_slice(), &*found.bytes), (view.shape(), view.data()), "{name}");
        assert_eq!(found.dtype, FloatType::F32);
    }
}

#[test]
fn shards_hold_the_same_model() {
    let one = Checkpoint::open(&tiny("llama-gqa")).unwrap();
    let many = Checkpoint::open(&tiny("llama-sharded")).unwrap();
    assert!(one.names().eq(many.names()));
    for name in one.names() {
        assert_eq!(one.tensor(name).unwrap().bytes, many.tensor(name).unwrap().bytes, "{name}");
    }
}

#[test]
fn converts_number_formats() {
    let device = Device::flex();
    let name = "model.layers.0.mlp.gate_proj.weight";
    let checkpoint = Checkpoint::open(&tiny("llama-gqa")).unwrap();
    let exact = floats(&checkpoint.tensor(name).unwrap().bytes);
    let load = |dtype| checkpoint.load::<2>(name, [24, 16], &device, dtype).unwrap().into_data();
    assert_eq!(load(DType::F32).try_into_vec::<f32>().unwrap(), exact);
    let rounded: Vec<bf16> = exact.iter().map(|x| bf16::from_f32(*x)).collect();
    assert_eq!(load(DType::BF16).try_into_vec::<bf16>().unwrap(), rounded);
    let rounded: Vec<f16> = exact.iter().map(|x| f16::from_f32(*x)).collect();
    assert_eq!(load(DType::F16).try_into_vec::<f16>().unwrap(), rounded);
    assert!(checkpoint.load::<2>(name, [24, 16], &device, DType::I64).is_err());

    let stored = Checkpoint::open(&tiny("qwen2-bf16")).unwrap();
    assert_eq!(stored.info(name).unwrap(), ([24, 16].as_slice(), FloatType::BF16));
    let bytes = stored.tensor(name).unwrap().bytes.into_owned();
    let exact: Vec<bf16> = bytes.as_chunks::<2>().0.iter().map(|b| bf16::from_le_bytes(*b)).collect();
    let load = |dtype| stored.load::<2>(name, [24, 16], &device, dtype).unwrap().into_data();
    assert_eq!(load(DType::BF16).try_into_vec::<bf16>().unwrap(), exact);
    let wide: Vec<f32> = exact.iter().map(|x| x.to_f32()).collect();
    assert_eq!(load(DType::F32).try_into_vec::<f32>().unwrap(), wide);
    assert_eq!(floats(&stored.bytes(name, FloatType::F32).unwrap()), wide);
}

#[test]
fn gguf_models_equal_their_originals() {
    for name in ["llama", "qwen2", "quantised"] {
        let checkpoint = Checkpoint::open(&fixtures().join(format!("gguf/{name}.gguf"))).unwrap();
        checkpoint.check_complete(&checkpoint.config().tensor_shapes()).unwrap();
        let bytes = fs::read(fixtures().join(format!("gguf/{name}.safetensors"))).unwrap();
        let reference = SafeTensors::deserialize(&bytes).unwrap();
        assert_eq!(checkpoint.names().count(), reference.len());
        for (tensor, view) in reference.iter() {
            let found = checkpoint.bytes(tensor, FloatType::F32).unwrap();
            assert_eq!(checkpoint.info(tensor).unwrap().0, view.shape(), "{name}: {tensor}");
            assert_eq!(floats(&found), floats(view.data()), "{name}: {tensor}");
        }
    }
}

#[test]
fn gguf_metadata_gives_the_configuration() {
    for (file, original) in [("llama", "llama-attention-bias"), ("qwen2", "qwen2-tied")] {
        let found = Checkpoint::open(&fixtures().join(format!("gguf/{file}.gguf"))).unwrap();
        let mut found = found.config().clone();
        let mut wanted = Checkpoint::open(&tiny(original)).unwrap().config().clone();
        // The tokenizer in the file is another one, and the JSON text differs.
        for config in [&mut found, &mut wanted] {
            config.json.clear();
            (config.bos_token_id, config.pad_token_id) = (None, None);
            config.eos_token_ids.clear();
        }
        assert_eq!(found, wanted);
    }
    let quantised = Checkpoint::open(&fixtures().join("gguf/quantised.gguf")).unwrap();
    let config = quantised.config();
    assert_eq!((config.architecture, config.head_dim), (Architecture::Llama, 16));
    assert!(config.tie_word_embeddings);
    let llama3 = RopeScaling::Llama3 {
        factor: 8.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_max_position_embeddings: 8192,
    };
    assert_eq!(config.rope.scaling, llama3);
    // A folder with one such file is as good as the file.
    let folder = tempfile::tempdir().unwrap();
    fs::copy(fixtures().join("gguf/llama.gguf"), folder.path().join("model-f32.gguf")).unwrap();
    assert!(Checkpoint::open(folder.path()).unwrap().gguf().is_some());
    fs::copy(fixtures().join("gguf/llama.gguf"), folder.path().join("other.gguf")).unwrap();
    assert!(fails(folder.path()).contains("holds 2 .gguf files"));
}

#[test]
fn gguf_refusals_name_what_they_refuse() {
    let whole = fs::read(fixtures().join("gguf/llama.gguf")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("model.gguf");
    let attempt = |bytes: &[u8]| {
        fs::write(&file, bytes).unwrap();
        let error = fails(&file);
        assert!(error.contains("model.gguf: "), "{error}");
        error
    };
    let patch = |find: &[u8], skip: usize, new: &[u8]| {
        let at = whole.windows(find.len()).position(|window| window == find).unwrap() + find.len() + skip;
        let mut bytes = whole.clone();
        bytes[at..at + new.len()].copy_from_slice(new);
        attempt(&bytes)
    };
    // A metadata value is a type (4 bytes), for texts a length (8), and the text.
    let error = patch(b"general.architecture", 12, b"gemma");
    assert!(error.contains("\"gemma\" is not supported"), "{error}");
    let error = patch(b"llama.rope.dimension_count", 4, &2u32.to_le_bytes());
    assert!(error.contains("partial rotary embedding"), "{error}");
    let error = patch(b"llama.rope.freq_bas", 0, b"x");
    assert!(error.contains("`rope_theta` is missing"), "{error}");
    let error = patch(b"llama.block_count", 4, &u32::MAX.to_le_bytes());
    assert!(error.contains("num_hidden_layers"), "{error}");
    // A tensor is a number of dimensions (4), two dimensions (16), a type (4) and an offset (8).
    let q = b"blk.0.attn_q.weight";
    let error = patch(q, 20, &10u32.to_le_bytes());
    assert!(error.contains("`blk.0.attn_q.weight` is stored as Q2_K"), "{error}");
    let error = patch(q, 20, &14u32.to_le_bytes());
    assert!(error.contains("no multiple of the block size 256"), "{error}");
    for (skip, number) in [(24, 1u64 << 40), (24, u64::MAX - 31), (4, 1 << 62), (24, 33)] {
        let error = patch(q, skip, &number.to_le_bytes());
        assert!(
            error.contains("`blk.0.attn_q.weight`") && error.contains("does not lie inside the file"),
            "{error}"
        );
    }
    let error = patch(q, 24, &0u64.to_le_bytes());
    assert!(error.contains("overlaps"), "{error}");
    let error = patch(q, 4, &8u64.to_le_bytes());
    assert!(error.contains("has shape [16, 8], but config.json calls for [16, 16]"), "{error}");
    let error = patch(b"blk.0.attn_q.weigh", 0, b"x");
    assert!(error.contains("missing: model.layers.0.self_attn.q_proj.weight"), "{error}");

    // What the file says beside: a key (8 bytes of length), a type (4), the value; as many bytes as keep the
    // data aligned.
    let with = |key: &str, kind: u32, value: &[u8]| {
        let entry = |key: &str, kind: u32, value: &[u8]| {
            let length = (key.len() as u64).to_le_bytes();
            [length.as_slice(), key.as_bytes(), &kind.to_le_bytes(), value].concat()
        };
        let mut inserted = entry(key, kind, value);
        let filler = "x".repeat(32 - (inserted.len() + 13) % 32);
        inserted.extend(entry(&filler, 7, &[1]));
        let mut bytes = whole.clone();
        let count = u64::from_le_bytes(bytes[16..24].try_into().unwrap()) + 2;
        bytes[16..24].copy_from_slice(&count.to_le_bytes());
        bytes.splice(24..24, inserted);
        bytes
    };
    assert!(attempt(&with("split.count", 2, &3u16.to_le_bytes())).contains("is one of 3 parts"));
    let window = with("llama.attention.sliding_window", 4, &64u32.to_le_bytes());
    assert!(attempt(&window).contains("sliding-window attention is not supported"));
    let none = with("llama.attention.sliding_window", 4, &0u32.to_le_bytes());
    fs::write(&file, none).unwrap();
    Model::load(&Checkpoint::open(&file).unwrap(), &Device::flex(), DType::F32).unwrap();

    let mut version = whole.clone();
    version[4..8].copy_from_slice(&3u32.to_be_bytes());
    assert!(attempt(&version).contains("big-endian"));
    for length in [4, 10, 100, 5000, whole.len() - 100] {
        let error = attempt(&whole[..length]);
        assert!(error.contains("truncated"), "{length}: {error}");
    }
    assert!(attempt(b"GGML").contains("is no GGUF file"));
}

#[test]
fn a_wrong_shape_is_refused_before_anything_is_read() {
    let checkpoint = Checkpoint::open(&tiny("llama-gqa")).unwrap();
    let load = |name, shape| checkpoint.load::<2>(name, shape, &Device::flex(), DType::F32);
    let error = load("model.embed_tokens.weight", [64, 17]).err().unwrap().to_string();
    assert!(error.contains("`model.embed_tokens.weight` has shape [64, 16]"), "{error}");
    assert!(error.contains("model.safetensors"), "{error}");
    let error = load("model.embed.weight", [64, 16]).err().unwrap();
    assert!(matches!(error, CheckpointError::Missing { .. }), "{error}");
}

#[test]
fn damage_is_named() {
    let embed = "model.embed_tokens.weight";
    let damaged = |edit: &dyn Fn(&mut serde_json::Map<String, serde_json::Value>)| {
        let folder = copy("llama-gqa");
        rewrite_header(&folder.path().join("model.safetensors"), edit);
        fails(folder.path())
    };
    let file = "model.safetensors: ";
    for (what, error) in [
        ("overlaps", damaged(&|h| h["model.norm.weight"]["data_offsets"] = serde_json::json!([0, 64]))),
        ("hole", damaged(&|h| drop(h.remove("model.layers.0.mlp.up_proj.weight")))),
        ("has offsets", damaged(&|h| h[embed]["data_offsets"] = serde_json::json!([8, 4]))),
        ("truncated", damaged(&|h| h[embed]["data_offsets"] = serde_json::json!([0, 1u64 << 40]))),
        ("takes 16384", damaged(&|h| h[embed]["shape"] = serde_json::json!([256, 16]))),
        ("impossible shape", damaged(&|h| h[embed]["shape"] = serde_json::json!([1u64 << 62, 1u64 << 62]))),
        ("stored as I32", damaged(&|h| h[embed]["dtype"] = serde_json::json!("I32"))),
        ("unknown variant", damaged(&|h| h[embed]["dtype"] = serde_json::json!("Q9"))),
    ] {
        assert!(error.contains(what) && error.contains(file), "{what}: {error}");
        assert!(error.contains('`') || what == "unknown variant", "names no tensor: {error}");
    }

    let folder = copy("llama-gqa");
    let file = folder.path().join("model.safetensors");
    let whole = fs::read(&file).unwrap();
    for length in [0, 4, 8, 100, whole.len() - 1] {
        fs::write(&file, &whole[..length]).unwrap();
        let error = fails(folder.path());
        assert!(error.contains("download it again"), "{length}: {error}");
    }
    let mut longer = whole.clone();
    longer.push(0);
    fs::write(&file, longer).unwrap();
    assert!(fails(folder.path()).contains("1 bytes after its last tensor"));
    fs::write(&file, [u64::MAX.to_le_bytes().as_slice(), &whole].concat()).unwrap();
    assert!(fails(folder.path()).contains("no safetensors file"));
    fs::remove_file(&file).unwrap();
    assert!(fails(folder.path()).contains("holds neither"));
    assert!(fails(&folder.path().join("config.json")).contains("is no GGUF file"));
}

#[test]
fn missing_extra_and_misplaced_tensors_are_named() {
    let folder = copy("llama-gqa");
    let file = folder.path().join("model.safetensors");
    rewrite_header(&file, |header| {
        let entry = header.remove("model.norm.weight").unwrap();
        header.insert("model.norm.scale".into(), entry);
    });
    assert!(fails(folder.path()).contains("1 tensors are missing: model.norm.weight"));
    let checkpoint = Checkpoint::open(folder.path()).unwrap();
    let mut expected = checkpoint.config().tensor_shapes();
    expected.retain(|(name, _)| name != "model.norm.weight");
    let error = checkpoint.check_complete(&expected).unwrap_err().to_string();
    assert!(error.contains("1 tensors have no place") && error.contains("model.norm.scale"), "{error}");

    // A configuration with a layer less, or more, than there are; biases and a head that it does not know.
    let with = |name: &str, change: serde_json::Value| {
        let folder = copy(name);
        let file = folder.path().join("config.json");
        let mut config: serde_json::Map<_, _> = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        config.extend(change.as_object().unwrap().clone());
        fs::write(&file, serde_json::to_vec(&config).unwrap()).unwrap();
        fails(folder.path())
    };
    let error = with("llama-gqa", serde_json::json!({"num_hidden_layers": 1}));
    assert!(error.contains("9 tensors have no place") && error.contains("model.layers.1."), "{error}");
    let error = with("llama-gqa", serde_json::json!({"num_hidden_layers": 3}));
    assert!(error.contains("9 tensors are missing") && error.contains("model.layers.2."), "{error}");
    let error = with("llama-mlp-bias", serde_json::json!({"mlp_bias": false}));
    assert!(error.contains("have no place") && error.contains("_proj.bias"), "{error}");

    // The configuration of another model.
    let folder = copy("llama-gqa");
    fs::copy(tiny("llama-head-dim").join("config.json"), folder.path().join("config.json")).unwrap();
    let error = fails(folder.path());
    assert!(
        error.contains("q_proj.weight` has shape [16, 16], but config.json calls for [32, 16]"),
        "{error}"
    );

    let index = |edit: &dyn Fn(&str) -> String| {
        let folder = copy("llama-sharded");
        let index = folder.path().join("model.safetensors.index.json");
        let text = fs::read_to_string(&index).unwrap();
        fs::write(&index, edit(&text)).unwrap();
        fails(folder.path())
    };
    let error = index(&|text| text.replace("model.norm.weight", "model.other.weight"));
    assert!(error.contains("`model.norm.weight` is here, but the index puts it in no file"), "{error}");
    let error = index(&|text| {
        text.replace("\"weight_map\": {", "\"weight_map\": {\"x\": \"model-00001-of-00002.safetensors\",")
    });
    assert!(error.contains("`x` is not in model-00001-of-00002.safetensors"), "{error}");
    let error = index(&|text| text.replacen("model-00001-of", "../model-00001-of", 1));
    assert!(error.contains("no safetensors file beside the index"), "{error}");
    let folder = copy("llama-sharded");
    fs::remove_file(folder.path().join("model-00002-of-00002.safetensors")).unwrap();
    assert!(fails(folder.path()).contains("model-00002-of-00002.safetensors"));
}

/// A tied checkpoint may repeat the embedding as its head, but not contradict it.
#[test]
fn tied_head_must_be_the_embedding() {
    let tie = |text: &str| text.replace("\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true");
    let folder = copy("llama-gqa");
    let config = folder.path().join("config.json");
    fs::write(&config, tie(&fs::read_to_string(&config).unwrap())).unwrap();
    let error = fails(folder.path());
    assert!(error.contains("`lm_head.weight` differs from the embedding"), "{error}");

    let file = folder.path().join("model.safetensors");
    let bytes = fs::read(&file).unwrap();
    let reference = SafeTensors::deserialize(&bytes).unwrap();
    let embedding = reference.tensor("model.embed_tokens.weight").unwrap().data();
    let head = reference.tensor("lm_head.weight").unwrap().data();
    let at = head.as_ptr() as usize - bytes.as_ptr() as usize;
    let mut same = bytes.clone();
    same[at..at + embedding.len()].copy_from_slice(embedding);
    fs::write(&file, same).unwrap();
    let checkpoint = Checkpoint::open(folder.path()).unwrap();
    checkpoint.check_complete(&checkpoint.config().tensor_shapes()).unwrap();
}

fn open_bytes(name: &str, bytes: &[u8]) {
    let folder = tempfile::tempdir().unwrap();
    let path = match name.ends_with(".gguf") {
        true => folder.path().join(name),
        false => {
            fs::copy(tiny("llama-gqa").join("config.json"), folder.path().join("config.json")).unwrap();
            folder.path().to_path_buf()
        }
    };
    fs::write(folder.path().join(name), bytes).unwrap();
    if let Ok(checkpoint) = Checkpoint::open(&path) {
        let _ = checkpoint.check_complete(&checkpoint.config().tensor_shapes());
        for name in checkpoint.names() {
            let _ = checkpoint.bytes(name, FloatType::F32);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever bytes change, the answer is an error or a checkpoint, never a crash.
    #[test]
    fn mutated_files_never_crash(
        changes in prop::collection::vec((0usize..6000, any::<u8>()), 1..8),
        cut in prop::option::of(0usize..40000),
    ) {
        for (folder, name) in [("tiny/llama-gqa", "model.safetensors"), ("gguf", "llama.gguf"), ("gguf", "quantised.gguf")] {
            let mut bytes = fs::read(fixtures().join(folder).join(name)).unwrap();
            // GGUF's tensor list comes after the tokenizer; reach it as well.
            let start = if name == "model.safetensors" || cut.is_some() { 0 } else { 8000 };
            for (at, value) in &changes {
                let at = (start + at) % bytes.len();
                bytes[at] = *value;
            }
            bytes.truncate(cut.unwrap_or(bytes.len()));
            open_bytes(name, &bytes);
        }
    }

    /// Numbers at the edges of their range in the header.
    #[test]
    fn hostile_numbers_never_crash(shape in prop::collection::vec(any::<u64>(), 0..4), begin: u64, end: u64) {
        let folder = copy("llama-gqa");
        rewrite_header(&folder.path().join("model.safetensors"), |header| {
            header["model.embed_tokens.weight"]["shape"] = serde_json::json!(shape);
            header["model.embed_tokens.weight"]["data_offsets"] = serde_json::json!([begin, end]);
        });
        prop_assert!(Checkpoint::open(folder.path()).is_err());
    }
}
