//! A reference that is computed once and kept.

mod common;

use common::{bits, config, model, sequences};
use trainer::data::{Batching, Sequence};
use trainer::objective::{psft, spft};
use trainer::reference::Reference;
use trainer::schedule::Schedule;
use trainer::sft::{Objective, SftConfig, train, train_against};
use trainer::trainee::{Current, Trainee};
use trainer::{Control, Outcome, Progress, Saving};

fn data() -> Vec<Sequence> {
    sequences(&[5, 9, 7, 4, 12, 6, 8])
}

fn base() -> Current {
    Current { model: model(&config(true), 1), adapter: None }
}

fn go(_: &Progress) -> Control {
    Control::Continue
}

/// All of `data`, in batches of so many tokens.
fn computed(data: &[Sequence], micro_tokens: usize) -> Reference {
    let mut reference = Reference::new(data.len());
    let all: Vec<usize> = (0..data.len()).collect();
    let batching = Batching { micro_tokens, pack: false };
    assert!(reference.compute(&[base()], data, &all, batching, |_, _, _| Control::Continue).unwrap());
    reference
}

fn settings(objective: Objective) -> SftConfig {
    let schedule = Schedule { lr: 3e-3, ..Schedule::default() };
    SftConfig { steps: Some(6), batch: 3, schedule, objective, ..SftConfig::default() }
}

fn run(config: &SftConfig, reference: Option<&Reference>, saving: &Saving, stop: u64) -> Outcome {
    let trainee = Trainee::full(base().model);
    let mut watch =
        |progress: &Progress| if progress.step == stop { Control::Stop } else { Control::Continue };
    train_against(config, trainee, &data(), &[], reference, saving, &mut watch).unwrap()
}

/// The run that computes its reference itself is the run whose reference was computed before, read from
/// its file, stopped and resumed: the same losses and weights, bit by bit.
#[test]
fn given_or_computed_a_reference_is_the_same_to_the_bit() {
    let reference = computed(&data(), 4096);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("reference.safetensors");
    reference.write(&path, &data()).unwrap();
    let reference = Reference::read(&path, &data()).unwrap();
    for objective in [Objective::Psft(psft::Psft::default()), Objective::Spft(spft::Spft::default())] {
        let settings = settings(objective);
        let own = run(&settings, None, &Saving::default(), 0);
        let given = run(&settings, Some(&reference), &Saving::default(), 0);
        assert_eq!(own.metrics, given.metrics);
        assert_eq!(bits(&own.trainee), bits(&given.trainee));

        let dir = tempfile::tempdir().unwrap();
        let saving = Saving { dir: Some(dir.path().to_owned()), every: 1 };
        assert!(!run(&settings, Some(&reference), &saving, 2).finished);
        let resumed = run(&settings, Some(&reference), &saving, 0);
        assert_eq!(resumed.metrics, own.metrics);
        assert_eq!(bits(&resumed.trainee), bits(&own.trainee));
    }
}

/// How sequences are batched shows in no more than rounding.
#[test]
fn batches_do_not_matter_beyond_rounding() {
    let (a, b) = (computed(&data(), 4096), computed(&data(), 1));
    for (a, b) in a.values().iter().flatten().zip(b.values().iter().flatten()) {
        assert!((a - b).abs() < 1e-5, "{a} against {b}");
    }
}

#[test]
fn an_interrupted_computation_goes_on_with_what_it_had() {
    let data = data();
    let all: Vec<usize> = (0..data.len()).collect();
    let batching = Batching { micro_tokens: 12, pack: false };
    let whole = computed(&data, 12);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kept.safetensors");
    let mut part = Reference::new(data.len());
    let stop = |values: &Reference, done: usize, _| {
        values.write(&path, &data).unwrap();
        if done == 2 { Control::Stop } else { Control::Continue }
    };
    assert!(!part.compute(&[base()], &data, &all, batching, stop).unwrap());
    let mut part = Reference::read(&path, &data).unwrap();
    let there = part.values().iter().filter(|values| !values.is_empty()).count();
    assert!(there > 0 && there < data.len(), "{there}");
    // what is there is not computed again: another model would give other values
    let other = Current { model: model(&config(true), 2), adapter: None };
    let mut mixed = part.clone();
    assert!(
        mixed
            .compute(std::slice::from_ref(&other), &data, &all, batching, |_, _, _| Control::Continue)
            .unwrap()
    );
    let kept = mixed.values().iter().zip(whole.values()).filter(|(a, b)| a == b).count();
    assert_eq!(kept, there);
    assert!(part.compute(&[base()], &data, &all, batching, |_, _, _| Control::Continue).unwrap());
    assert_eq!(part, whole);
}

#[test]
fn a_reference_that_does_not_belong_is_refused() {
    let (data, settings) = (data(), settings(Objective::Psft(psft::Psft::default())));
    let of = |config: &SftConfig, reference: &Reference| {
        let trainee = Trainee::full(base().model);
        let saving = Saving::default();
        train_against(config, trainee, &data, &[], Some(reference), &saving, &mut go).unwrap_err().to_string()
    };
    let short = computed(&data[..4], 4096);
    assert!(of(&settings, &short).contains("example 4"));
    let refreshed = SftConfig { refresh_reference: 2, ..settings.clone() };
    assert!(of(&refreshed, &computed(&data, 4096)).contains("refresh_reference"));

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("reference.safetensors");
    short.write(&path, &data[..4]).unwrap();
    let error = Reference::read(&path, &data).unwrap_err().to_string();
    assert!(error.contains("other sequences") && error.contains("reference.safetensors"), "{error}");
    std::fs::write(&path, b"half").unwrap();
    assert!(Reference::read(&path, &data[..4]).is_err());

    // a state saved against one reference is not continued against another
    let dir = tempfile::tempdir().unwrap();
    let saving = Saving { dir: Some(dir.path().to_owned()), every: 1 };
    run(&settings, Some(&computed(&data, 4096)), &saving, 2);
    let trainee = Trainee::full(base().model);
    let error = train(&settings, trainee, &data, &[], &saving, &mut go).unwrap_err().to_string();
    assert!(error.contains("reference"), "{error}");
}
