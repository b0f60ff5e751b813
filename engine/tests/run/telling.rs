//! What is published with the facts of the run.

use engine::event::Event;
use engine::facts::{Facts, StageState};

use crate::support::Place;

const TELLING: &str = r#"
[stage.base]
kind = "write"
text = "a base text of some length"
[stage.page]
kind = "tell"
from = ["@base"]
publish = "page"
[stage.other]
kind = "write"
text = "beside it"
"#;

fn facts(place: &Place) -> Facts {
    serde_json::from_str(&place.read("results/toy/page/facts.json")).unwrap()
}

#[test]
fn a_published_page_tells_of_the_whole_graph_and_its_artifact_does_not() {
    let place = Place::new(TELLING);
    place.succeed(&[]);
    let told = facts(&place);
    let shape: Vec<(&str, &[usize], StageState)> =
        told.stages.iter().map(|stage| (stage.name.as_str(), &stage.needs[..], stage.state)).collect();
    let done = StageState::Done;
    assert_eq!(shape, [("base", &[][..], done), ("page", &[0][..], done), ("other", &[][..], done)]);
    let made = told.stages[1].made.as_ref().unwrap();
    assert_eq!(made.inputs.keys().collect::<Vec<_>>(), ["@base"]);
    assert!(made.peak_memory > 0 && made.seconds > 0.0 && made.gpus == 0, "{made:?}");
    let on_gpu: Vec<u64> =
        told.stages.iter().map(|stage| stage.made.as_ref().unwrap().peak_gpu_memory).collect();
    assert_eq!(on_gpu, [0, 7_000_000_000, 0]);
    assert_eq!(told.manifest, "p.toml");
    assert_eq!(place.read("results/toy/page/out.txt"), "a base text of some length");
    // The artifact itself has one file.
    assert!(place.stored("views").iter().all(|path| !path.ends_with("facts.json")));
    // Again: the same facts, so nothing is written.
    let before = place.snapshot();
    let again = place.succeed(&[]);
    let page =
        |event: &&Event| matches!(event, Event::Published { stage, changed: false, .. } if stage == "page");
    assert_eq!(again.events.iter().filter(page).count(), 1);
    let after = place.snapshot();
    let published = |path: &&std::path::PathBuf| path.starts_with(place.path("results"));
    assert!(before.keys().filter(published).all(|path| before[path] == after[path]));
}

#[test]
fn a_failure_elsewhere_is_told_and_a_damaged_copy_restored() {
    let place = Place::new(&TELLING.replace("text = \"beside it\"", "lie = true"));
    let ran = place.run(&["--keep-going"]);
    assert_eq!(ran.code, 1);
    assert_eq!(facts(&place).stages[2].state, StageState::Failed);
    place.write("results/toy/page/out.txt", "edited");
    place.run(&["--keep-going"]);
    assert_eq!(place.read("results/toy/page/out.txt"), "a base text of some length");
}

#[test]
fn a_run_tells_of_itself_from_its_log() {
    let place = Place::new(TELLING);
    place.succeed(&[]);
    place.succeed(&["--force=page"]);
    let store = engine::store::Store::open_read_only(&place.path("cache"));
    let runs = store.runs_dir();
    let id = engine::history::find(&runs, "latest").unwrap();
    let told = engine::facts::of_run(&store, &id).unwrap().unwrap();
    let states: Vec<StageState> = told.stages.iter().map(|stage| stage.state).collect();
    assert_eq!(states, [StageState::Cached, StageState::Ran, StageState::Cached]);
    let run = told.run.unwrap();
    assert_eq!((run.id, run.status.as_str()), (id, "succeeded"));
    let published = facts(&place);
    assert_eq!(told.manifest_digest, published.manifest_digest);
    assert_eq!(told.stages[0].made, published.stages[0].made);
}
