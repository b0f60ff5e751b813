//! A trained model on disk is the trained model.

mod common;

use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use common::{config, model, sequences};
use lm::checkpoint::{Checkpoint, TensorSpec, WriteOptions, write_folder};
use lm::config::FloatType;
use lm::model::Model;
use trainer::sft::{SftConfig, train};
use trainer::trainee::Trainee;
use trainer::{Control, Progress, Saving};

fn logits(model: &Model) -> Vec<f32> {
    let ids = TensorData::new(vec![3i32, 14, 15, 9, 2, 6], [1, 6]);
    let ids = Tensor::<2, Int>::from_data(ids, &Device::flex());
    model.forward(ids, None).into_data().try_into_vec().unwrap()
}

#[test]
fn a_trained_model_is_written_with_its_tie_and_reloads_to_the_same_logits() {
    for tied in [true, false] {
        let trainee = Trainee::full(model(&config(tied), 1));
        let settings = SftConfig { steps: Some(3), batch: 2, ..SftConfig::default() };
        let mut go = |_: &Progress| Control::Continue;
        let data = sequences(&[7, 9, 5]);
        let outcome = train(&settings, trainee, &data, &[], &Saving::default(), &mut go).unwrap();
        let trained = outcome.trainee.current().model;

        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("model");
        let specs = TensorSpec::all(trained.config(), FloatType::F32);
        assert_eq!(specs.iter().any(|s| s.name == "lm_head.weight"), !tied);
        let named = trained.named_parameters();
        write_folder(&folder, trained.config(), &specs, &WriteOptions::default(), |spec| {
            let (_, parameter) = named.iter().find(|(name, _)| *name == spec.name).unwrap();
            Ok(parameter.to_data().as_bytes().to_vec().into())
        })
        .unwrap();
        let checkpoint = Checkpoint::open(&folder).unwrap();
        assert_eq!(checkpoint.config().tie_word_embeddings, tied);
        let again = Model::load(&checkpoint, &Device::flex(), DType::F32).unwrap();
        assert_eq!(logits(&again), logits(&trained));
        assert_ne!(logits(&again), logits(&model(&config(tied), 1)));
    }
}
