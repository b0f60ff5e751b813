//! The pass without a GPU: every kernel compiled, every call made, memory counted.

use lm::config::ModelConfig;

use super::weights::{Factors, LayerWeights, Linear, Norm, Rows};
use super::*;

/// An address that is never followed.
const NOWHERE: u64 = 1 << 20;

fn config(vocab: usize, hidden: usize, inner: usize, layers: usize, heads: [usize; 2]) -> ModelConfig {
    let json = serde_json::json!({
        "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "hidden_act": "silu",
        "vocab_size": vocab, "hidden_size": hidden, "intermediate_size": inner,
        "num_hidden_layers": layers, "num_attention_heads": heads[0], "num_key_value_heads": heads[1],
        "max_position_embeddings": 32768, "rms_norm_eps": 1e-6, "rope_theta": 1e6,
        "tie_word_embeddings": true,
    });
    ModelConfig::from_json(json.as_object().unwrap().clone(), "config.json".as_ref()).unwrap()
}

#[derive(Clone, Copy, PartialEq)]
enum What {
    Bias,
    Lora,
    Full,
}

fn weights(config: &ModelConfig, what: What) -> Weights {
    let full = (what == What::Full).then_some(NOWHERE);
    let rows = |leading| Rows { pointer: NOWHERE, leading };
    let norm = Norm { weight: NOWHERE, by_weight: full };
    let linear = |projection: Projection| {
        let size = projection.shape(config);
        let steered = (what == What::Bias && projection == Projection::Down).then_some(NOWHERE);
        let own_bias = weights::ATTENTION.contains(&projection).then_some(NOWHERE);
        let lora = (what == What::Lora).then_some(Factors {
            a: NOWHERE,
            b: NOWHERE,
            rank: 16,
            scale: 1.0,
            by_a: Some(NOWHERE),
            by_b: Some(NOWHERE),
            columns: None,
        });
        Linear {
            projection,
            size,
            weight: rows(size[1]),
            own_bias,
            extra_bias: steered,
            bias: None,
            lora,
            by_weight: full,
            by_bias: steered.or(own_bias.and(full)),
        }
    };
    let layer = LayerWeights {
        input_norm: norm,
        post_norm: norm,
        linears: Projection::ALL.map(linear),
        qkv_bias: None,
    };
    Weights {
        embedding: rows(config.hidden_size),
        by_embedding: full,
        layers: vec![layer; config.num_layers],
        norm,
        head: rows(config.hidden_size),
        by_head: full,
        _held: Vec::new(),
    }
}

fn batch(rows: usize, width: usize, vocab: usize, segmented: bool) -> Batch {
    let tokens = rows * width;
    let segments = segmented.then(|| {
        let half = |i: usize| (i % width) / width.div_ceil(2);
        let position = |i: usize| (i % width) % width.div_ceil(2);
        ((0..tokens).map(|i| position(i) as u32).collect(), (0..tokens).map(|i| half(i) as u32).collect())
    });
    let places: Vec<u32> = (0..tokens).filter(|i| i % width != width - 1).map(|i| i as u32).collect();
    Batch {
        members: (0..rows).collect(),
        rows,
        width,
        ids: (0..tokens).map(|i| (i * 7 % vocab) as u32).collect(),
        origins: (0..tokens).map(|i| ((i / width) as u32, (i % width) as u32)).collect(),
        segments,
        targets: vec![1; places.len()],
        places,
    }
}

/// Calls by name and the most memory at once, of one pass.
fn dry(config: &ModelConfig, what: What, batch: &Batch, pass: Pass) -> (Vec<(&'static str, u64)>, usize) {
    let sizes = Sizes::new(config, batch.rows, batch.width);
    assert!(sizes.fit());
    let rope = Rope::new(config);
    let prepared = Prepared { weights: weights(config, what), sizes, batch, rope: &rope, gpu: 0 };
    let mut e = Executor::dry();
    let keep = Keep { heads: true, gate_up: !pass.recompute };
    prepared.on(&mut e, pass.temperature, pass.dropout, |run| {
        run.accumulate(1.0, |_| keep, |_, rows| crate::objective::sft::evaluate(&rows.log_prob));
    });
    let calls = e.profile().into_iter().map(|(name, calls, _)| (name, calls)).collect();
    (calls, e.peak())
}

/// Every kernel in every form compiles, and nothing is refused.
#[test]
fn passes_of_every_kind_compile() {
    let config = config(512, 64, 160, 2, [4, 2]);
    let dropout = Some(Dropout { rate: 0.1, seed: 1, step: 0 });
    for what in [What::Bias, What::Lora, What::Full] {
        for (segmented, recompute) in [(false, false), (true, true)] {
            let batch = batch(2, 24, 512, segmented);
            for dropout in [None, dropout.filter(|_| what == What::Lora)] {
                let pass = Pass { recompute, dropout, ..Pass::default() };
                let (calls, peak) = dry(&config, what, &batch, pass);
                assert!(calls.iter().any(|(name, _)| *name == "soften_backward"));
                assert!(peak > 0);
            }
        }
    }
}

/// An update of a small model is bound by launches: no more of them than this.
#[test]
fn a_layer_takes_few_calls() {
    let config = half_b();
    let (calls, _) = dry(&config, What::Full, &batch(1, 2048, 151_936, false), Pass::default());
    let total: u64 = calls.iter().map(|(_, calls)| calls).sum();
    assert!(total < 24 * 70, "{total}: {calls:?}");
}

fn half_b() -> ModelConfig {
    config(151_936, 896, 4864, 24, [14, 2])
}

fn seven_b() -> ModelConfig {
    config(152_064, 3584, 18_944, 28, [28, 4])
}

/// [`Load::stack`] is what a pass takes: never less, and at most 6 % more.
#[test]
fn the_stack_is_as_high_as_the_formula_says() {
    let small = config(512, 64, 160, 2, [4, 2]);
    let lora = |config: &ModelConfig| {
        let sides = Projection::ALL.iter().map(|p| p.shape(config).iter().sum::<usize>()).sum::<usize>();
        sides * 16 * config.num_layers
    };
    for (config, what, rows, seq) in [
        (half_b(), What::Full, 1, 2048),
        (half_b(), What::Full, 4, 2048),
        (seven_b(), What::Bias, 8, 1152),
        (seven_b(), What::Lora, 8, 1152),
        (seven_b(), What::Lora, 2, 4096),
        (small, What::Full, 64, 512),
    ] {
        let batch = batch(rows, seq, config.vocab_size, false);
        for recompute in [false, true] {
            let (_, peak) = dry(&config, what, &batch, Pass { recompute, ..Pass::default() });
            let parameters =
                || config.tensor_shapes().iter().map(|(_, d)| d.iter().product::<usize>()).sum::<usize>();
            let trained = match what {
                What::Full => parameters(),
                What::Lora => lora(&config),
                What::Bias => config.num_layers * config.hidden_size,
            };
            let load = Load {
                config: config.clone(),
                number: 2,
                trained: trained as u64,
                full: what == What::Full,
                recompute,
                beside: true,
                rows: rows as u64,
                seq: seq as u64,
                rollouts: None,
            };
            let formula = load.stack(load.keeps(u64::MAX)) as f64;
            let ratio = formula / peak as f64;
            println!("{rows} x {seq} {recompute}: {:.3} GB, formula {ratio:.3}", peak as f64 / 1e9);
            assert!((1.0..1.06).contains(&ratio), "{rows} x {seq}, recompute {recompute}: {ratio}");
        }
    }
}

/// Kernels that read lines of four get whole ones whatever the shape: odd lengths, several blocks of
/// queries, heads of 8 numbers, three to a group.
#[test]
fn lines_are_whole_in_every_shape_that_fits() {
    let narrow = config(520, 72, 168, 1, [9, 3]);
    assert_eq!(narrow.head_dim, 8);
    for (rows, seq, segmented) in [(3, 23, true), (1, 1, false), (16, 1027, false), (16, 1027, true)] {
        let batch = batch(rows, seq, 520, segmented);
        if seq > 1000 {
            let sizes = Sizes::new(&narrow, rows, seq);
            assert!(sizes.block < seq, "{}", sizes.block);
        }
        // a call that is refused makes the end of the pass panic
        dry(&narrow, What::Full, &batch, Pass::default());
    }
}

#[test]
#[should_panic(expected = "norm reads lines of 4 numbers")]
fn a_line_that_begins_in_between_stops_the_pass() {
    let mut e = Executor::dry();
    let [x, out] = [(); 2].map(|()| e.take(64, HALF));
    calls::norm(&mut e, x, NOWHERE + 4, out, [1, 64], 1e-6);
    e.finish();
}

#[test]
#[should_panic(expected = "gate_up reads lines of 4 numbers")]
fn a_length_of_no_whole_lines_stops_the_pass() {
    let mut e = Executor::dry();
    let [gate, up, out] = [(); 3].map(|()| e.take(64, HALF));
    calls::gate_up(&mut e, [gate, up], out, 62);
    e.finish();
}

/// Lines are read and written as such, and stay in registers.
#[test]
fn kernels_read_lines_at_once() {
    use crate::fused::kernels::{UNITS, lines, rows};
    use cubecl::CubeKernel;
    use lm::nvidia::kernel::{BUFFER, Setting, compile, setting};

    fn check<K: CubeKernel>(make: impl FnOnce(Setting) -> K) {
        let text = compile(&make(setting(UNITS))).unwrap().text();
        assert!(text.contains("v4.b16") || text.contains("v2.b32"), "{text}");
        for single in ["global.b16", "nc.b16", "global.u16", "nc.u16", ".local"] {
            assert!(!text.contains(single), "{single} in\n{text}");
        }
    }
    let b = || BUFFER;
    check(|(s, p, t)| lines::gate_up_lines::GateUpLines::new(s, p, t, b(), b(), b(), ()));
    check(|(s, p, t)| lines::gate_up_backward_lines::GateUpBackwardLines::new(s, p, t, b(), b(), b(), ()));
    check(|(s, p, t)| lines::norm_lines::NormLines::new(s, p, t, b(), b(), b(), (), ()));
    check(|(s, p, t)| {
        lines::norm_backward_lines::NormBackwardLines::new(s, p, t, b(), b(), b(), b(), (), ())
    });
    check(|(s, p, t)| {
        let n = ();
        lines::soften_backward_lines::SoftenBackwardLines::new(s, p, t, b(), b(), n, n, n, n, n, n, n)
    });
    for segmented in [false, true] {
        check(|(s, p, t)| {
            let n = ();
            lines::soften_lines::SoftenLines::new(s, p, t, b(), b(), n, n, n, n, n, n, n, n, n, segmented)
        });
        check(|(s, p, t)| rows::swap_heads::SwapHeads::new(s, p, t, b(), b(), (), (), (), (), segmented));
    }
}
