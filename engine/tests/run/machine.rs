//! What depends on the machine and on leave given: devices, slots, trust, pins, secrets.

use std::fs;

use crate::support::{Place, Ran, files_below};

fn gpu_stages(count: usize) -> String {
    (0..count)
        .map(|salt| {
            format!("[stage.g{salt}]\nkind = \"device\"\ngpus = 1\nsalt = {salt}\nmark = \"$DIR/used\"\n")
        })
        .collect()
}

fn run_with_gpus(place: &Place, gpus: &str, args: &[&str]) -> Ran {
    let mut command = place.command(&[&["run", "p.toml", "--json", "--jobs", "4"], args].concat());
    Ran::of(command.env("TOY_GPUS", gpus).env_remove("CUDA_VISIBLE_DEVICES").output().unwrap())
}

#[test]
fn every_running_stage_has_a_gpu_of_its_own() {
    let place = Place::new(&gpu_stages(6));
    let ran = run_with_gpus(&place, "2", &[]);
    assert_eq!(ran.code, 0, "{ran:#?}");
    let mut busy: Vec<String> = Vec::new();
    for line in place.marks("used") {
        let (what, gpu) = line.split_once(" cuda:0 ").unwrap_or_else(|| panic!("{line}"));
        match what {
            "begin" => {
                assert!(!busy.contains(&gpu.to_owned()), "{:?}", place.marks("used"));
                busy.push(gpu.to_owned());
            }
            _ => busy.retain(|one| one != gpu),
        }
    }
    assert_eq!(place.marks("used").len(), 12);
    assert!(place.marks("used").iter().any(|line| line.ends_with(" 1")), "both were used");
}

#[test]
fn the_device_class_is_part_of_the_key_but_not_the_number_of_the_gpu() {
    let place = Place::new(&gpu_stages(1));
    assert_eq!(run_with_gpus(&place, "2", &["--device", "cuda:1"]).computed(), ["g0"]);
    assert_eq!(place.marks("used")[0], "begin cuda:0 1");
    assert_eq!(run_with_gpus(&place, "2", &["--device", "cuda:0"]).cached(), ["g0"]);
    let cpu = run_with_gpus(&place, "2", &["--device", "cpu"]);
    assert_eq!(cpu.computed(), ["g0"]);
    assert!(cpu.why("g0").contains("device"), "{}", cpu.why("g0"));
    assert_eq!(place.marks("used")[2], "begin cpu ");
}

#[test]
fn a_device_that_is_not_there_is_refused() {
    let place = Place::new(&gpu_stages(1));
    let none = run_with_gpus(&place, "0", &["--device", "cuda"]);
    assert_eq!(none.code, 3);
    assert!(none.stderr.contains("it sees no GPU"), "{}", none.stderr);
    assert_eq!(run_with_gpus(&place, "1", &["--device", "cuda:5"]).code, 3);
    assert_eq!(run_with_gpus(&place, "1", &["--device", "tpu"]).code, 2);
    let many = run_with_gpus(&place, "1", &["--set", "stage.g0.gpus=2"]);
    assert_eq!(many.code, 3);
    assert!(many.stderr.contains("stage g0 needs 2 GPUs and this run has 1"), "{}", many.stderr);
}

#[test]
fn memory_is_a_slot() {
    let place = Place::new("");
    let mut text = String::new();
    for salt in 0..3 {
        text += &format!(
            "[stage.m{salt}]\nkind = \"sleep\"\nmilliseconds = 100\nsalt = {salt}\nmark = \"$DIR/log\"\nresources = {{ memory = \"100000GB\" }}\n"
        );
    }
    place.manifest(&text);
    place.succeed(&["--jobs", "3"]);
    assert_eq!(place.marks("log"), ["begin", "end", "begin", "end", "begin", "end"], "one at a time");
}

#[test]
fn programs_run_only_with_leave_which_holds_for_this_manifest() {
    let place = Place::new("[stage.x]\nkind = \"spawn\"\npids = \"$DIR/pids\"\nleave = true\n");
    let refused = place.run(&[]);
    assert_eq!(refused.code, 2);
    assert!(
        refused.stderr.contains("stages x") && refused.stderr.contains("--allow-commands"),
        "{}",
        refused.stderr
    );
    assert!(!place.path("pids").exists());
    place.succeed(&["--allow-commands"]);
    assert_eq!(place.run(&["--force"]).code, 2, "leave was for once");
    place.succeed(&["--trust"]);
    place.succeed(&["--force"]);
    let text = place.read("p.toml");
    place.write("p.toml", &format!("{text}\n# another manifest now\n"));
    assert_eq!(place.run(&["--force"]).code, 2, "an edited manifest asks again");
}

#[test]
fn pins_are_written_beside_the_manifest_and_belong_to_the_key() {
    let place = Place::new("[stage.x]\nkind = \"pin\"\nsource = \"https://toys/1\"\nmark = \"$DIR/ran\"\n");
    place.succeed(&[]);
    let lock = place.read("p.lock");
    assert!(lock.contains("[source.\"https://toys/1\"]") && lock.contains("revision = \"r1\""), "{lock}");
    assert_eq!(place.succeed(&["--offline"]).cached(), ["x"], "the key already has the pin");
    assert_eq!(place.read("p.lock"), lock);
    place.write("p.lock", &lock.replace("abab", "cdcd"));
    let ran = place.succeed(&[]);
    assert_eq!(ran.computed(), ["x"]);
    assert!(ran.why("x").contains("https://toys/1"), "{}", ran.why("x"));
    place.write("p.lock", "[sauce]\n");
    let broken = place.run(&[]);
    assert_eq!(broken.code, 2);
    assert!(broken.stderr.contains("p.lock") && broken.stderr.contains("sauce"), "{}", broken.stderr);
}

#[test]
fn offline_reaches_the_stage() {
    let place = Place::new("[stage.x]\nkind = \"pin\"\nsource = \"https://toys/1\"\n");
    let ran = place.run(&["--offline"]);
    assert_eq!(ran.failure("x").0.message, "https://toys/1 is not in the cache");
}

/// Scenario 31.
#[test]
fn values_of_the_environment_are_written_nowhere() {
    let place = Place::new(
        "[stage.a]\nkind = \"write\"\ntext = \"x\"\n[stage.b]\nkind = \"fail\"\nhow = \"input\"\n",
    );
    let secret = "correct-horse-battery-staple";
    let mut command = place.command(&["run", "p.toml", "--json", "--keep-going"]);
    let output = command.env("HF_TOKEN", secret).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(!String::from_utf8_lossy(&said).contains(secret));
    let files = files_below(&place.path("."));
    assert!(files.len() > 8, "{files:?}");
    for file in files {
        let content = fs::read(&file).unwrap_or_default();
        let found = content.windows(secret.len()).any(|window| window == secret.as_bytes());
        assert!(!found, "{}", file.display());
    }
}

#[test]
fn what_cannot_fit_a_gpu_is_refused_before_anything_runs() {
    let place = Place::new(
        "[stage.small]\nkind = \"write\"\ntext = \"x\"\nmark = \"$DIR/ran\"\n\
         [stage.large]\nkind = \"device\"\ngpus = 1\ntoo_large = true\n",
    );
    let mut command = place.command(&["run", "p.toml"]);
    let output = command.env("TOY_GPUS", "1").env_remove("CUDA_VISIBLE_DEVICES").output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("stage large does not fit cuda:0; make it smaller"), "{said}");
    assert!(!place.path("ran").exists(), "nothing may have run");
    // the CPU has no such limit
    place.succeed(&[]);
}
