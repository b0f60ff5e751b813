//! The gradient of an update does not depend on how many devices share it.

mod common;

use std::ops::Range;
use std::sync::Arc;

use burn::tensor::Device;
use common::{bits, config, flatten, model, sequences};
use lm::adapter::{Adapter, BiasAdapter, Lora, Projection};
use trainer::data::{Batch, Batching};
use trainer::gradient::Pass;
use trainer::loss::RowValues;
use trainer::objective::{psft, sft};
use trainer::parallel::{OnFirst, gradients};
use trainer::schedule::Schedule;
use trainer::sft::{Objective, SftConfig, train};
use trainer::trainee::Trainee;
use trainer::{Control, Metrics, Outcome, Progress, Saving};

fn spread(trainee: &Trainee, devices: usize) -> Trainee {
    let others = vec![Device::flex(); devices - 1];
    trainee.clone().on_devices(&others, Arc::new(OnFirst))
}

fn trainees() -> Vec<Trainee> {
    let base = model(&config(true), 1);
    let bias = BiasAdapter::zeros(base.config(), Projection::Down, &base.device());
    let lora = Lora::new(base.config(), &[Projection::Query, Projection::Up], 2, 2.0, 0, &base.device());
    vec![
        Trainee::adapter(base.clone(), Adapter::Bias(bias)),
        Trainee::adapter(base.clone(), Adapter::Lora(lora)),
        Trainee::full(base),
    ]
}

#[test]
fn devices_with_unequal_token_counts_sum_to_the_gradient_of_one() {
    // from 3 to 101 trained tokens per sequence, a sequence per micro-batch
    let data = sequences(&[4, 102, 9, 33, 5, 61, 17, 8, 12, 7]);
    let members: Vec<usize> = (0..data.len()).collect();
    let tokens: usize = data.iter().map(|s| s.targets.len()).sum();
    let batching = Batching { micro_tokens: 1, pack: false };
    for trainee in trainees() {
        let of = |trainee: &Trainee| {
            let pass = Pass::default();
            let shares = batching.shares(&data, &members, trainee.devices());
            let objective = |_: &Batch, _: Range<usize>, rows: &RowValues| sft::evaluate(&rows.log_prob);
            let scale = 1.0 / tokens as f64;
            let (gradients, sums) = gradients(trainee, &shares, pass, scale, &objective, |_| {});
            let gradients: Vec<f32> = gradients.into_iter().flat_map(flatten).collect();
            let loss = sums.iter().find(|(name, _)| *name == "loss").unwrap().1;
            (gradients, loss)
        };
        let (one, loss) = of(&trainee);
        let largest = one.iter().fold(0.0f32, |m, g| m.max(g.abs()));
        // more devices than batches leaves some of them idle
        for devices in [2, 3, 8, 12] {
            let (many, same_loss) = of(&spread(&trainee, devices));
            assert_eq!(one.len(), many.len());
            for (a, b) in one.iter().zip(&many) {
                assert!((a - b).abs() < 1e-5 * largest, "{devices} devices: {a} against {b}");
            }
            assert!((loss - same_loss).abs() < 1e-9 * loss);
        }
    }
}

#[test]
fn runs_on_several_devices_repeat_themselves_to_the_bit() {
    let data = sequences(&[5, 9, 7, 4, 12, 6, 8]);
    let settings = SftConfig {
        steps: Some(4),
        batch: 5,
        batching: Batching { micro_tokens: 12, pack: false },
        ..SftConfig::default()
    };
    for trainee in trainees() {
        let run = || {
            let mut go = |_: &Progress| Control::Continue;
            let saving = Saving::default();
            bits(&train(&settings, spread(&trainee, 3), &data, &[], &saving, &mut go).unwrap().trainee)
        };
        assert_eq!(run(), run());
    }
}

/// Every number of devices starts from the same held-out loss, to the bit, and follows the same curve; a
/// run that is stopped, or whose process ends, goes on to the bits of the run that was not.
#[test]
fn a_run_on_several_devices_follows_that_on_one_and_resumes_to_the_bit() {
    let (data, held_out) = (sequences(&[5, 9, 7, 4, 12, 6, 8]), sequences(&[9, 5]));
    let settings = SftConfig {
        steps: Some(6),
        batch: 5,
        objective: Objective::Psft(psft::Psft::default()),
        refresh_reference: 3,
        schedule: Schedule { lr: 3e-3, ..Schedule::default() },
        batching: Batching { micro_tokens: 12, pack: false },
        eval_every: 1,
        eval_at: vec![0],
        ..SftConfig::default()
    };
    let base = Trainee::full(model(&config(true), 1));
    let run = |devices: usize, saving: &Saving, stop_at: u64| {
        let mut watch = |progress: &Progress| match progress.step == stop_at {
            true => Control::Stop,
            false => Control::Continue,
        };
        train(&settings, spread(&base, devices), &data, &held_out, saving, &mut watch).unwrap()
    };
    let curve = |outcome: &Outcome| -> Vec<f64> {
        let lines = outcome.metrics.iter().map(|line| serde_json::from_str::<Metrics>(line).unwrap());
        let values = |m: Metrics| [m.get("initial_held_out_loss"), m.get("held_out_loss")];
        lines.flat_map(values).flatten().collect()
    };
    let one = curve(&run(1, &Saving::default(), 0));
    assert_eq!(one.len(), 7);
    for devices in [2, 4, 8] {
        let whole = run(devices, &Saving::default(), 0);
        let many = curve(&whole);
        assert_eq!(many[0].to_bits(), one[0].to_bits());
        for (a, b) in one.iter().zip(&many) {
            assert!((a - b).abs() < 1e-4 * a, "{devices} devices: {a} against {b}");
        }
        let dir = tempfile::tempdir().unwrap();
        let saving = Saving { dir: Some(dir.path().to_owned()), every: 1 };
        assert!(!run(devices, &saving, 4).finished);
        let resumed = run(devices, &saving, 0);
        assert_eq!(resumed.metrics, whole.metrics);
        assert_eq!(bits(&resumed.trainee), bits(&whole.trainee));
    }
}
