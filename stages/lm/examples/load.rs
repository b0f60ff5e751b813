//! How fast a checkpoint loads, beside a plain read of the same files.
//!
//!     cargo run --release -p lm --example load -- MODEL [bf16|f16|f32]
//!
//! MODEL is a folder or a GGUF file. Without it, a safetensors file of random bf16 weights is
//! made in a temporary folder (SIZE_MB, default 1024). Every figure is the best of five with the
//! file in the page cache, in GB of file per second. The plain reads copy the file once: into a
//! buffer that is used again, and (what any loader must do) into new memory of the whole size.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Instant;

use burn::tensor::{DType, Device, Tensor, TensorData};
use lm::checkpoint::{Checkpoint, TensorSpec, WriteOptions, write_folder};
use lm::config::{FloatType, ModelConfig};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let made = tempfile::tempdir().expect("a temporary folder");
    let path = match arguments.first() {
        Some(path) => PathBuf::from(path),
        None => random_model(made.path()),
    };
    let dtypes: Vec<DType> = match arguments.get(1).map(String::as_str) {
        None => vec![DType::BF16, DType::F16, DType::F32],
        Some("bf16") => vec![DType::BF16],
        Some("f16") => vec![DType::F16],
        Some("f32") => vec![DType::F32],
        Some(other) => panic!("{other}: bf16, f16 or f32"),
    };
    let files = weight_files(&path);
    let size: u64 = files.iter().map(|file| std::fs::metadata(file).expect("a readable file").len()).sum();
    let report = |what: &str, work: &mut dyn FnMut()| {
        let best = (0..5).map(|_| {
            let start = Instant::now();
            work();
            start.elapsed().as_secs_f64()
        });
        let best = best.fold(f64::INFINITY, f64::min);
        println!("{what:<42} {:>7.2} s {:>7.2} GB/s", best, size as f64 / best / 1e9);
    };
    println!("{} ({:.2} GB)", path.display(), size as f64 / 1e9);
    report("plain read, one buffer used again", &mut || {
        let mut buffer = vec![0; 8 << 20];
        for file in &files {
            let mut file = File::open(file).expect("a readable file");
            while file.read(&mut buffer).expect("a readable file") > 0 {}
        }
    });
    report("plain read into new memory", &mut || {
        for file in &files {
            drop(std::fs::read(file).expect("a readable file"));
        }
    });
    report("open and check the headers", &mut || {
        let checkpoint = Checkpoint::open(&path).expect("a checkpoint");
        checkpoint.check_complete(&checkpoint.config().tensor_shapes()).expect("a whole checkpoint");
    });
    for dtype in dtypes {
        report(&format!("load as {dtype:?}, one tensor at a time"), &mut || load(&path, dtype, drop));
        let mut kept = Vec::new();
        report(&format!("load as {dtype:?}, all tensors kept"), &mut || {
            kept.clear();
            load(&path, dtype, |data| kept.push(data));
        });
    }
}

fn load(path: &Path, dtype: DType, mut done: impl FnMut(TensorData)) {
    let device = Device::flex();
    let checkpoint = Checkpoint::open(path).expect("a checkpoint");
    for (name, shape) in checkpoint.config().tensor_shapes() {
        let tensor = match shape[..] {
            [rows, columns] => {
                checkpoint.load(&name, [rows, columns], &device, dtype).map(Tensor::<2>::into_data)
            }
            _ => checkpoint.load(&name, [shape[0]], &device, dtype).map(Tensor::<1>::into_data),
        };
        done(tensor.expect("a whole checkpoint"));
    }
}

fn weight_files(path: &Path) -> Vec<PathBuf> {
    if path.is_file() {
        return vec![path.to_path_buf()];
    }
    let entries = std::fs::read_dir(path).expect("a readable folder");
    entries
        .map(|entry| entry.expect("a readable folder").path())
        .filter(|file| file.extension().is_some_and(|e| e == "safetensors" || e == "gguf"))
        .collect()
}

/// A model of about SIZE_MB megabytes, in the proportions of Qwen2.5-1.5B's layers.
fn random_model(parent: &Path) -> PathBuf {
    let megabytes: usize = std::env::var("SIZE_MB").ok().and_then(|n| n.parse().ok()).unwrap_or(1024);
    let layers = (megabytes / 94).max(1);
    let json = serde_json::json!({
        "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "vocab_size": 16384,
        "hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": layers,
        "num_attention_heads": 12, "num_key_value_heads": 2, "rms_norm_eps": 1e-6,
        "rope_theta": 1e6, "max_position_embeddings": 4096, "tie_word_embeddings": true,
    });
    let serde_json::Value::Object(json) = json else { unreachable!() };
    let config = ModelConfig::from_json(json, Path::new("config.json")).expect("a valid configuration");
    let specs = TensorSpec::all(&config, FloatType::BF16);
    let folder = parent.join("model");
    let mut state = 1u64;
    write_folder(&folder, &config, &specs, &WriteOptions::default(), |spec| {
        let count: usize = spec.shape.iter().product();
        let mut bytes = Vec::with_capacity(count * 2);
        for _ in 0..count {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let value = (state >> 40) as f32 / (1 << 24) as f32 - 0.5;
            bytes.extend(half::bf16::from_f32(value).to_le_bytes());
        }
        Ok(bytes.into())
    })
    .expect("a writable temporary folder");
    folder
}
