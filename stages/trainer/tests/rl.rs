//! Training on rollouts, whole runs on a tiny model.

mod common;

use common::{bits, config, model};
use lm::adapter::{Adapter, BiasAdapter, Lora, Projection};
use lm::generate::SamplingParams;
use trainer::rl::{EntropyOptions, Objective, RandomReward, Reward, RlConfig, train};
use trainer::rollout::Rollout;
use trainer::schedule::Schedule;
use trainer::trainee::Trainee;
use trainer::{Control, Metrics, Outcome, Progress, Saving, TrainError, Watch};

const LIKED: u32 = 7;

fn settings() -> RlConfig {
    RlConfig {
        steps: 5,
        prompts: 2,
        group: 4,
        sampling: SamplingParams { max_tokens: 6, stop_token_ids: vec![3], ..SamplingParams::default() },
        schedule: Schedule { lr: 0.05, ..Schedule::default() },
        ..RlConfig::default()
    }
}

fn prompts() -> Vec<Vec<u32>> {
    vec![vec![1, 2, 4], vec![5, 6], vec![8, 9, 10, 11, 12]]
}

fn bias() -> Trainee {
    let base = model(&config(true), 1);
    let adapter = Adapter::Bias(BiasAdapter::zeros(base.config(), Projection::Down, &base.device()));
    Trainee::adapter(base, adapter)
}

fn lora() -> Trainee {
    let base = model(&config(true), 1);
    let adapter = Lora::new(base.config(), &[Projection::Down], 4, 4.0, 3, &base.device());
    Trainee::adapter(base, Adapter::Lora(adapter))
}

/// Likes one token: the more often, the better.
fn grade(rollouts: &[Rollout]) -> Result<Vec<f32>, String> {
    let liked = |r: &Rollout| r.sample.ids.iter().filter(|&&id| id == LIKED).count() as f32;
    Ok(rollouts.iter().map(liked).collect())
}

fn run(config: &RlConfig, trainee: Trainee, saving: &Saving, stop_at: u64) -> Result<Outcome, TrainError> {
    train(config, trainee, &prompts(), None, &mut grade, saving, &mut |progress: &Progress| {
        if progress.step == stop_at { Control::Stop } else { Control::Continue }
    })
}

fn metrics(outcome: &Outcome) -> Vec<Metrics> {
    outcome.metrics.iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn values(outcome: &Outcome, name: &str) -> Vec<f64> {
    metrics(outcome).iter().map(|m| m.get(name).unwrap()).collect()
}

#[test]
fn a_stopped_and_resumed_run_equals_an_uninterrupted_one_to_the_bit() {
    for trainee in [bias(), lora(), Trainee::full(model(&config(false), 2))] {
        let whole = run(&settings(), trainee.clone(), &Saving::default(), 0).unwrap();
        for stop_at in [1, 3] {
            let dir = tempfile::tempdir().unwrap();
            let saving = Saving { dir: Some(dir.path().to_path_buf()), every: 0 };
            assert!(!run(&settings(), trainee.clone(), &saving, stop_at).unwrap().finished);
            // neither the batch of generation nor the micro-batch of a resumed run shows
            let other = RlConfig { max_batch: 3, ..settings() };
            let resumed = run(&other, trainee.clone(), &saving, 0).unwrap();
            assert_eq!(resumed.metrics, whole.metrics);
            assert_eq!(bits(&resumed.trainee), bits(&whole.trainee));
        }
    }
}

/// Stops in the middle of the rollouts of update 3.
struct Impatient {
    updates: u64,
    told: usize,
}

impl Watch for Impatient {
    fn updated(&mut self, progress: &Progress) -> Control {
        self.updates = progress.step;
        Control::Continue
    }
    fn sampled(&mut self, done: usize, total: usize) -> Control {
        assert!(done <= total);
        self.told += 1;
        if self.updates == 2 { Control::Stop } else { Control::Continue }
    }
}

#[test]
fn a_stop_within_rollouts_keeps_the_updates_before() {
    let config = settings();
    let dir = tempfile::tempdir().unwrap();
    let saving = Saving { dir: Some(dir.path().to_path_buf()), every: 0 };
    let mut watch = Impatient { updates: 0, told: 0 };
    let outcome = train(&config, bias(), &prompts(), None, &mut grade, &saving, &mut watch).unwrap();
    assert!(!outcome.finished && watch.told >= 3);
    assert_eq!((outcome.step, outcome.metrics.len()), (2, 2));
    let resumed = run(&config, bias(), &saving, 0).unwrap();
    let whole = run(&config, bias(), &Saving::default(), 0).unwrap();
    assert_eq!(resumed.metrics, whole.metrics);
    assert_eq!(bits(&resumed.trainee), bits(&whole.trainee));
}

#[test]
fn rewarded_behaviour_grows_under_every_adapter() {
    for (name, trainee) in [("bias", bias()), ("lora", lora())] {
        let config = RlConfig { steps: 40, group: 8, prompts: 3, ..settings() };
        let rewards = values(&run(&config, trainee, &Saving::default(), 0).unwrap(), "reward");
        let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len() as f64;
        let (first, last) = (mean(&rewards[..5]), mean(&rewards[35..]));
        assert!(last > first + 1.0, "{name}: from {first} to {last}");
    }
}

#[test]
fn sampler_and_trainer_agree_on_log_probabilities() {
    let config =
        RlConfig { sampling: SamplingParams { temperature: 0.7, ..settings().sampling }, ..settings() };
    let differences = values(&run(&config, lora(), &Saving::default(), 0).unwrap(), "logprob_difference");
    assert!(differences.iter().all(|&d| d < 1e-5), "{differences:?}");
}

#[test]
fn equal_rewards_move_nothing_and_are_counted() {
    let config = RlConfig { reward: Reward::Constant(1.0), ..settings() };
    let start = bias();
    let outcome = run(&config, start.clone(), &Saving::default(), 0).unwrap();
    assert_eq!(values(&outcome, "zero_variance"), [2.0; 5]);
    assert_eq!(values(&outcome, "grad_norm"), [0.0; 5]);
    assert_eq!(values(&outcome, "loss"), [0.0; 5]);
    assert!(values(&outcome, "entropy").iter().all(|&h| h > 0.0));
    assert_eq!(bits(&outcome.trainee), bits(&start));
}

#[test]
fn random_rewards_are_seeded_coins() {
    let reward = Reward::Random(RandomReward { probability: 0.25, ..RandomReward::default() });
    let config = RlConfig { reward, steps: 40, group: 10, ..settings() };
    let rewards = values(&run(&config, bias(), &Saving::default(), 0).unwrap(), "reward");
    // 800 coins of probability 1/4 between -1 and 1: mean -0.5, standard error 0.031
    let mean = rewards.iter().sum::<f64>() / 40.0;
    assert!((mean + 0.5).abs() < 0.15, "{mean}");
    let again = values(&run(&config, bias(), &Saving::default(), 0).unwrap(), "reward");
    assert_eq!(rewards, again);
    let other = RlConfig { seed: 1, ..config };
    assert_ne!(rewards, values(&run(&other, bias(), &Saving::default(), 0).unwrap(), "reward"));
}

#[test]
fn minimising_entropy_lowers_it() {
    let objective = Objective::Entropy(EntropyOptions::default());
    let config = RlConfig { objective, steps: 30, group: 4, ..settings() };
    let outcome = run(&config, bias(), &Saving::default(), 0).unwrap();
    let entropy = values(&outcome, "entropy");
    assert!(entropy[29] < 0.5 * entropy[0], "{entropy:?}");
    // the loss is the entropy
    assert_eq!(values(&outcome, "loss"), entropy);
    assert!(metrics(&outcome)[0].get("reward").is_none());
}

#[test]
fn a_grade_that_fails_names_the_step() {
    let mut failing = |_: &[Rollout]| Err("the grader is gone".to_owned());
    let mut go = |_: &Progress| Control::Continue;
    let error = train(&settings(), bias(), &prompts(), None, &mut failing, &Saving::default(), &mut go)
        .unwrap_err()
        .to_string();
    assert!(error.contains("step 1") && error.contains("the grader is gone"), "{error}");
    let mut short = |_: &[Rollout]| Ok(vec![1.0]);
    let error = train(&settings(), bias(), &prompts(), None, &mut short, &Saving::default(), &mut go)
        .unwrap_err()
        .to_string();
    assert!(error.contains("1 rewards came back for 8 rollouts"), "{error}");
}

#[test]
fn impossible_settings_say_what_to_write() {
    let of = |config: RlConfig| run(&config, bias(), &Saving::default(), 0).unwrap_err().to_string();
    assert!(of(RlConfig { group: 1, ..settings() }).contains("at least 2"));
    let sampling = SamplingParams::greedy(5);
    assert!(of(RlConfig { sampling, ..settings() }).contains("positive temperature"));
}

/// Rollouts shared out over devices are those of one, and so is the whole run but for the order of
/// additions in gradients.
#[test]
fn several_devices_draw_the_rollouts_of_one() {
    let settings = RlConfig { prompts: 3, ..settings() };
    let spread = |trainee: Trainee, devices: usize| {
        let others = vec![burn::tensor::Device::flex(); devices - 1];
        trainee.on_devices(&others, std::sync::Arc::new(trainer::parallel::OnFirst))
    };
    for trainee in [bias(), lora()] {
        let texts = |devices: usize| {
            let mut seen = Vec::new();
            let mut grade = |rollouts: &[Rollout]| {
                seen.push(
                    rollouts.iter().map(|r| (r.prompt, r.index, r.sample.ids.clone())).collect::<Vec<_>>(),
                );
                self::grade(rollouts)
            };
            let mut go = |_: &Progress| Control::Continue;
            let trainee = spread(trainee.clone(), devices);
            let saving = Saving::default();
            let outcome = train(&settings, trainee, &prompts(), None, &mut grade, &saving, &mut go).unwrap();
            let rewards = values(&outcome, "reward");
            (seen, rewards)
        };
        let (one, rewards) = texts(1);
        // more devices than prompts leaves some of them idle
        for devices in [2, 3, 5] {
            let (many, same) = texts(devices);
            assert_eq!(one[0], many[0], "the first step's rollouts on {devices} devices");
            assert!((rewards[0] - same[0]).abs() < 1e-9);
        }
    }
}
