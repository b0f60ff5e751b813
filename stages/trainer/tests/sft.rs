//! Training on demonstrations, whole runs on a tiny model.

mod common;

use common::{bits, config, model, sequences};
use lm::adapter::{Adapter, BiasAdapter, Projection};
use trainer::data::Batching;
use trainer::objective::{psft, spft};
use trainer::optim::AdamW;
use trainer::schedule::{Schedule, Shape};
use trainer::sft::{Objective, SftConfig, train};
use trainer::trainee::Trainee;
use trainer::{Control, Metrics, Outcome, Progress, Saving, TrainError};

fn full() -> Trainee {
    Trainee::full(model(&config(true), 1))
}

fn settings() -> SftConfig {
    SftConfig {
        steps: Some(6),
        batch: 3,
        schedule: Schedule { lr: 3e-3, warmup_steps: 2, ..Schedule::default() },
        eval_every: 2,
        ..SftConfig::default()
    }
}

fn lengths() -> Vec<usize> {
    vec![5, 9, 7, 4, 12, 6, 8]
}

fn run(config: &SftConfig, saving: &Saving, stop_at: u64) -> Result<Outcome, TrainError> {
    let (data, held_out) = (sequences(&lengths()), sequences(&[9, 5]));
    train(config, full(), &data, &held_out, saving, &mut |progress: &Progress| {
        if progress.step == stop_at { Control::Stop } else { Control::Continue }
    })
}

fn metrics(outcome: &Outcome) -> Vec<Metrics> {
    outcome.metrics.iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_stopped_and_resumed_run_equals_an_uninterrupted_one_to_the_bit() {
    for (objective, refresh_reference) in [
        (Objective::Sft, 0),
        (Objective::Psft(psft::Psft::default()), 0),
        (Objective::Spft(spft::Spft::default()), 4),
    ] {
        let config = SftConfig { objective, refresh_reference, ..settings() };
        let whole = run(&config, &Saving::default(), 0).unwrap();
        assert!(whole.finished);
        for stop_at in 1..6 {
            let dir = tempfile::tempdir().unwrap();
            let saving = Saving { dir: Some(dir.path().to_path_buf()), every: 1 };
            let part = run(&config, &saving, stop_at).unwrap();
            assert!(!part.finished);
            let resumed = run(&config, &saving, 0).unwrap();
            assert!(resumed.finished);
            assert_eq!(resumed.metrics, whole.metrics, "stopped at {stop_at}");
            assert_eq!(bits(&resumed.trainee), bits(&whole.trainee), "stopped at {stop_at}");
        }
    }
}

#[test]
fn a_run_killed_between_saves_repeats_what_it_lost() {
    let dir = tempfile::tempdir().unwrap();
    let saving = Saving { dir: Some(dir.path().to_path_buf()), every: 2 };
    let (data, held_out) = (sequences(&lengths()), sequences(&[9, 5]));
    let killed = std::panic::catch_unwind(|| {
        train(&settings(), full(), &data, &held_out, &saving, &mut |progress: &Progress| {
            assert!(progress.step < 5, "killed");
            Control::Continue
        })
    });
    assert!(killed.is_err());
    let mut first = None;
    let resumed = train(&settings(), full(), &data, &held_out, &saving, &mut |progress: &Progress| {
        first.get_or_insert(progress.step);
        Control::Continue
    })
    .unwrap();
    assert_eq!(first, Some(5));
    let whole = run(&settings(), &Saving::default(), 0).unwrap();
    assert_eq!(resumed.metrics, whole.metrics);
    assert_eq!(bits(&resumed.trainee), bits(&whole.trainee));
}

#[test]
fn more_steps_continue_where_the_schedule_allows_it() {
    let dir = tempfile::tempdir().unwrap();
    let saving = Saving { dir: Some(dir.path().to_path_buf()), every: 0 };
    let short = SftConfig { steps: Some(4), ..settings() };
    assert!(run(&short, &saving, 0).unwrap().finished);
    let long = run(&settings(), &saving, 0).unwrap();
    assert_eq!((long.step, long.metrics.len()), (6, 6));
    // at the end of the short run the held-out loss was measured, as in the long run's step 4
    assert_eq!(bits(&long.trainee), bits(&run(&settings(), &Saving::default(), 0).unwrap().trainee));

    let error = run(&short, &saving, 0).unwrap_err().to_string();
    assert!(error.contains("update 6, beyond the 4"), "{error}");

    let falling = |steps| {
        let schedule = Schedule { shape: Shape::Cosine, ..settings().schedule };
        SftConfig { steps: Some(steps), schedule, ..settings() }
    };
    let dir = tempfile::tempdir().unwrap();
    let saving = Saving { dir: Some(dir.path().to_path_buf()), every: 0 };
    run(&falling(4), &saving, 0).unwrap();
    let error = run(&falling(6), &saving, 0).unwrap_err().to_string();
    assert!(error.contains("steps: 4 then, 6 now"), "{error}");
}

#[test]
fn the_last_update_of_an_epoch_is_divided_by_its_own_tokens() {
    // 7 sequences by 4: two updates, the learning rate moves twice
    let config = SftConfig { steps: None, epochs: 1.0, batch: 4, shuffle: false, ..settings() };
    let outcome = run(&config, &Saving::default(), 0).unwrap();
    let metrics = metrics(&outcome);
    let tokens: Vec<f64> = metrics.iter().map(|m| m.get("tokens").unwrap()).collect();
    assert_eq!(tokens, [4.0 + 8.0 + 6.0 + 3.0, 11.0 + 5.0 + 7.0]);
    let rates: Vec<f64> = metrics.iter().map(|m| m.get("lr").unwrap()).collect();
    assert_eq!(rates, [0.0, 1.5e-3]);
    // micro-batches of one sequence each give the same loss
    let single = SftConfig { batching: Batching { micro_tokens: 1, pack: false }, ..config };
    let again = self::metrics(&run(&single, &Saving::default(), 0).unwrap());
    for (a, b) in metrics.iter().zip(&again) {
        let (a, b) = (a.get("loss").unwrap(), b.get("loss").unwrap());
        assert!((a - b).abs() < 1e-5, "{a} against {b}");
    }
}

#[test]
fn training_learns_and_every_objective_starts_as_it_should() {
    let config = SftConfig {
        steps: Some(60),
        batch: 7,
        schedule: Schedule { lr: 1e-2, ..Schedule::default() },
        ..settings()
    };
    let sft = metrics(&run(&config, &Saving::default(), 0).unwrap());
    let (first, last) = (sft[0].get("loss").unwrap(), sft[59].get("loss").unwrap());
    assert!(last < 0.2 * first, "from {first} to {last}");

    let psft = SftConfig { objective: Objective::Psft(psft::Psft::default()), ..config.clone() };
    let psft = metrics(&run(&psft, &Saving::default(), 0).unwrap());
    // at the reference the loss is -1 and the gradient that of cross-entropy
    assert!((psft[0].get("loss").unwrap() + 1.0).abs() < 1e-5);
    let (a, b) = (sft[0].get("grad_norm").unwrap(), psft[0].get("grad_norm").unwrap());
    assert!((a - b).abs() < 1e-4 * a, "{a} against {b}");
    assert_eq!(psft[0].get("clip_fraction"), Some(0.0));
    assert!(psft[59].get("clip_fraction").unwrap() > 0.5);
    assert!(psft[59].get("approx_kl").unwrap() > 0.0);
}

#[test]
fn a_reference_that_is_refreshed_starts_again_at_ratio_one() {
    let objective = Objective::Psft(psft::Psft::default());
    let config = SftConfig { objective, refresh_reference: 3, ..settings() };
    let metrics = metrics(&run(&config, &Saving::default(), 0).unwrap());
    let at_one = |step: usize| (metrics[step].get("ratio").unwrap() - 1.0).abs() < 1e-5;
    assert!(at_one(0) && !at_one(2) && at_one(3) && !at_one(5));
}

#[test]
fn under_an_adapter_the_model_stays_as_it_is() {
    let base = model(&config(true), 1);
    let before: Vec<_> = base.named_parameters().iter().map(|(_, p)| p.to_data()).collect();
    let adapter = Adapter::Bias(BiasAdapter::zeros(base.config(), Projection::Down, &base.device()));
    let trainee = Trainee::adapter(base, adapter);
    let data = sequences(&lengths());
    let outcome =
        train(&settings(), trainee, &data, &[], &Saving::default(), &mut |_: &Progress| Control::Continue)
            .unwrap();
    assert_eq!(outcome.trainee.len(), 2 * 16);
    assert!(bits(&outcome.trainee).iter().any(|&b| b != 0));
    for ((_, p), before) in outcome.trainee.current().model.named_parameters().iter().zip(before) {
        assert_eq!(p.to_data(), before);
    }
}

#[test]
fn impossible_settings_say_what_to_write() {
    let of = |config: SftConfig| run(&config, &Saving::default(), 0).unwrap_err().to_string();
    assert!(of(SftConfig { batch: 0, ..settings() }).contains("at least 1"));
    let schedule = Schedule { lr: f64::NAN, ..Schedule::default() };
    assert!(of(SftConfig { schedule, ..settings() }).contains("schedule.lr"));
    let optimizer = AdamW { beta2: 1.0, ..AdamW::default() };
    assert!(of(SftConfig { optimizer, ..settings() }).contains("optimizer.beta2"));
    let unknown = serde_json::from_str::<SftConfig>(r#"{"batchsize": 3}"#).unwrap_err();
    assert!(unknown.to_string().contains("unknown field"));
}

/// Where nothing moves, every measurement gives the same bits: the slice and its batches are fixed.
#[test]
fn the_held_out_loss_is_the_same_at_every_evaluation() {
    let schedule = Schedule { lr: 1e-30, ..Schedule::default() };
    for pack in [false, true] {
        let batching = Batching { micro_tokens: 12, pack };
        let config = SftConfig { schedule, eval_every: 1, eval_at: vec![0], batching, ..settings() };
        let metrics = metrics(&run(&config, &Saving::default(), 0).unwrap());
        let first = metrics[0].get("initial_held_out_loss").unwrap();
        assert!(metrics.iter().all(|m| m.get("held_out_loss") == Some(first)));
    }
}

#[test]
fn objectives_that_mean_nothing_are_refused() {
    let psft = |clip_low, clip_high| Objective::Psft(psft::Psft { clip_low, clip_high });
    let spft = |lambda| Objective::Spft(spft::Spft { lambda, ..spft::Spft::default() });
    for (objective, field) in
        [(psft(-0.5, 0.28), "clip_low"), (psft(0.2, f64::NAN), "clip_high"), (spft(f64::INFINITY), "lambda")]
    {
        let error = run(&SftConfig { objective, ..settings() }, &Saving::default(), 0).unwrap_err();
        assert!(error.to_string().contains(field), "{error}");
    }
}

#[test]
fn a_run_that_leaves_the_numbers_stops_with_its_step() {
    let schedule = Schedule { lr: 1e30, ..Schedule::default() };
    let config = SftConfig { schedule, ..settings() };
    let error = run(&config, &Saving::default(), 0).unwrap_err().to_string();
    assert!(error.contains("not finite") && error.contains("step "), "{error}");
}
