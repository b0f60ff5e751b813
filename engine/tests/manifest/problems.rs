//! What is said about wrong manifests: each snapshot is what a user sees.

use insta::assert_snapshot;

use crate::toys::{Folder, load, mistakes};

#[test]
fn unknown_keys_at_every_level() {
    assert_snapshot!(mistakes(
        r#"
name = "x"
titel = "X"

[vers]
a = 1

[arm.lora]
lable = "LoRA"
[arm.lora.trian]
lr = 1e-4

[defaults.trian]
lr = 1
[defaults.train]
stepz = 1

[stage.base]
kind = "note"

[stage.train]
kind = "train"
foreach = ["arm"]
model = "@base"
rolouts = 4
adapter = { type = "lora", rank = 8, alhpa = 2.0 }
resources = { gpu = 1 }
"#
    ));
}

#[test]
fn wrong_types_all_in_one_go() {
    assert_snapshot!(mistakes(
        r#"
name = 5
seed = "17"

[stage.data]
kind = "data"
count = "100"
seed = 1.0

[stage.train]
kind = "train"
model = ["@data"]
lr = "1e-3"
steps = -1
rollouts = 5000000000
targets = "q_proj"
adapter = "lora"
schedule = "cosin"
retries = "2"
cache = "no"

[stage.second]
kind = "train"
model = "@data"
adapter = { type = "lorra" }

[stage.third]
kind = "train"
model = "@data"
adapter = { rank = 8 }

[stage.fourth]
kind = "train"
model = "@data"
adapter = { type = "lora", rank = "8" }
targets = ["a", 1]
"#
    ));
}

#[test]
fn missing_things() {
    assert_snapshot!(mistakes(
        r#"
title = "No name"

[stage.first]
lr = 1

[stage.train]
kind = "train"
adapter = { type = "lora" }

[stage.table]
kind = "table"
"#
    ));
}

#[test]
fn unknown_kinds_and_dangling_references() {
    assert_snapshot!(mistakes(
        r#"
name = "x"
[stage.data]
kind = "date"
[stage.base]
kind = "note"
[stage.train]
kind = "train"
model = "@bse"
data = "@data/train.jsonl"
[stage.other]
kind = "train"
model = "base"
data = "@other thing["
[stage.third]
kind = "train"
model = "./nowhere.gguf"
data = "@base/../x"
[stage.table]
kind = "table"
samples = "@nothing-like-it[*]"
"#
    ));
}

#[test]
fn references_to_instances() {
    assert_snapshot!(mistakes(
        r#"
name = "x"
[arm.base]
[arm.lora]
[arm.prefix]
[matrix]
seed = [1, 2]
[stage.data]
kind = "data"
[stage.train]
kind = "train"
foreach = ["arm"]
arms = ["lora"]
model = "@data"
[stage.sweep]
kind = "train"
foreach = ["arm", "seed"]
model = "@data"
[stage.eval]
kind = "train"
foreach = ["arm"]
model = "@train"
[stage.one]
kind = "train"
model = "@train"
data = "@train[*]"
[stage.two]
kind = "train"
model = "@train[base]"
data = "@data[lora]"
[stage.three]
kind = "train"
foreach = ["arm"]
model = "@sweep"
data = "@sweep[sed=1]"
[stage.table]
kind = "table"
samples = ["@train[*]", "@sweep[*]", "@train[lora]"]
"#
    ));
}

#[test]
fn cycles_are_spelled_out() {
    assert_snapshot!(mistakes(
        r#"
name = "x"
[arm.a]
[arm.b]
[stage.self]
kind = "train"
model = "@self"
[stage.a]
kind = "train"
model = "@b/model"
[stage.b]
kind = "train"
model = "@c"
[stage.c]
kind = "train"
model = "@self"
data = "@a"
[stage.left]
kind = "train"
foreach = ["arm"]
model = "@right"
[stage.right]
kind = "train"
foreach = ["arm"]
model = "@left"
"#
    ));
}

#[test]
fn a_long_cycle_is_cut_short() {
    let mut text = String::from("name = \"x\"\n");
    for stage in 0..20 {
        let next = (stage + 1) % 20;
        text.push_str(&format!("[stage.s{stage}]\nkind = \"train\"\nmodel = \"@s{next}\"\n"));
    }
    let text = mistakes(&text);
    assert_snapshot!(text.lines().take(4).collect::<Vec<_>>().join("\n"));
}

#[test]
fn outputs_that_do_not_exist() {
    assert_snapshot!(mistakes(
        r#"
name = "x"
[stage.data]
kind = "data"
[stage.train]
kind = "train"
model = "@data/trian.jsonl"
[stage.fine]
kind = "train"
model = "@train/model/config.json"
[stage.open]
kind = "table"
samples = {}
[stage.fine-too]
kind = "train"
model = "@open/whatever.txt"
"#
    ));
}

#[test]
fn two_stages_with_one_publish_path_or_nested_ones() {
    assert_snapshot!(mistakes(
        r#"
name = "x"
[arm.a]
[arm.b]
[stage.one]
kind = "note"
publish = "table"
[stage.two]
kind = "note"
publish = "Table"
[stage.three]
kind = "note"
publish = "table/inner"
[stage.table2]
kind = "note"
publish = "table-2"
[stage.up]
kind = "note"
publish = "../up"
[stage.fan]
kind = "note"
foreach = ["arm"]
publish = "fan"
[stage.fine]
kind = "note"
foreach = ["arm"]
publish = "fine/${arm}"
"#
    ));
}

#[test]
fn names_that_file_systems_confuse() {
    assert_snapshot!(mistakes(
        "
name = \"My Experiment\"
[arm.STRASSE]
[arm.\"Straße\"]
[stage.\"caf\u{e9}\"]
kind = \"note\"
[stage.\"cafe\u{301}\"]
kind = \"note\"
[stage.Data]
kind = \"note\"
[stage.data]
kind = \"note\"
[stage.\"a/b\"]
kind = \"note\"
[stage.label]
kind = \"note\"
[matrix]
size = [\"S\", \"s\", \"a b\"]
step = [1, 1, [2]]
none = []
arm = [1]
"
    ));
}

#[test]
fn numbers_that_are_none() {
    assert_snapshot!(mistakes(
        r#"
name = "x"
[vars]
big = 1e400
[stage.train]
kind = "train"
model = "@data"
lr = nan
steps = 99999999999999999999
[stage.data]
kind = "data"
[claims]
base = -inf
"#
    ));
}

/// A number that cannot be read is told once, not again as the 0 that stands for it.
#[test]
fn a_number_that_is_none_is_told_once() {
    for (value, code) in
        [("nan", "not-finite"), ("-inf", "not-finite"), ("99999999999999999999", "number-too-large")]
    {
        for text in [
            format!("name = \"x\"\n[stage.d]\nkind = \"data\"\ncount = {value}\n"),
            format!("name = \"x\"\n[vars]\nn = {value}\n[stage.d]\nkind = \"data\"\ncount = \"${{n}}\"\n"),
            format!("name = \"x\"\n[stage.n]\nkind = \"note\"\ntext = {value}\n"),
        ] {
            let errors = load(&text).err().expect("a mistake");
            let codes: Vec<&str> = errors.problems().iter().map(|problem| problem.code).collect();
            assert_eq!(codes, [code], "{text}{}", errors.render(false, 100));
        }
    }
}

/// A device or pipe as an input would be read without end.
#[test]
fn inputs_that_are_no_files_are_refused() {
    let folder = Folder::new(&[]);
    let pipe = std::ffi::CString::new(folder.path("pipe").to_str().unwrap()).unwrap();
    // SAFETY: a valid C string.
    assert_eq!(unsafe { libc::mkfifo(pipe.as_ptr(), 0o600) }, 0);
    std::os::unix::fs::symlink("/dev/zero", folder.path("link")).unwrap();
    for path in ["/dev/zero", "./pipe", "link"] {
        let text = format!("name = \"x\"\n[stage.t]\nkind = \"train\"\nmodel = \"{path}\"\n");
        std::fs::write(folder.path("m.toml"), text).unwrap();
        let said = folder.mistakes(&[]);
        assert!(said.contains("is neither a file nor a folder"), "{path}: {said}");
    }
}

#[test]
fn durations_and_sizes() {
    assert_snapshot!(mistakes(
        r#"
name = "x"
[stage.a]
kind = "note"
timeout = "2 hous"
resources = { memory = "8 gigs" }
[stage.b]
kind = "note"
timeout = "90"
resources = { memory = "8" }
[stage.c]
kind = "note"
timeout = 90
resources = { memory = 8, gpus = -1 }
[stage.d]
kind = "note"
timeout = "0s"
retries = 1.5
"#
    ));
}

#[test]
fn variables() {
    assert_snapshot!(mistakes(
        r#"
name = "x"
[vars]
questions = 20
a = "${b}"
b = "${c}"
c = "${a}"
list = [1, 2]
arms = 3
[stage.a]
kind = "note"
text = "${qestions}"
[stage.b]
kind = "note"
text = "${arm} and ${seed}"
[stage.c]
kind = "note"
text = "n-${list}"
[stage.d]
kind = "note"
text = "${questions"
[stage.e]
kind = "data"
count = "${name}"
[stage.f]
kind = "note"
text = "${claims.lora.math500}"
[claims.lora]
math = 1
"#
    ));
}

#[test]
fn arms_and_axes() {
    assert_snapshot!(mistakes(
        r#"
name = "x"
[arm.base]
[arm.base.data]
count = 1
[arm.base.train]
lr = 1
[arm.base.eval]
kind = "note"
[arm.lora]
[matrix]
seed = [1]
[stage.data]
kind = "data"
[stage.train]
kind = "train"
foreach = ["arm", "sede"]
arms = ["lroa", "lora"]
model = "@data"
[stage.eval]
kind = "note"
foreach = ["arm", "arm"]
[stage.odd]
kind = "note"
arms = ["lora"]
[stage.none]
kind = "note"
foreach = ["arm"]
arms = []
[stage.text]
kind = "note"
foreach = "arm"
"#
    ));
}

#[test]
fn checks_of_the_kind_itself() {
    assert_snapshot!(mistakes(
        r#"
name = "x"
[vars]
count = 0
[stage.data]
kind = "data"
count = "${count}"
"#
    ));
}

#[test]
fn syntax_errors() {
    assert_snapshot!(mistakes("name = x\n[stage.a\nkind = \"note\"\nkind = \"data\"\n"));
}

#[test]
fn tables_of_the_wrong_type() {
    assert_snapshot!(mistakes(
        "name = \"x\"\nstage = 1\narm = [1]\nvars = \"a\"\nmatrix = 2\ndefaults = true\nclaims = 3\n"
    ));
}

#[test]
fn an_empty_manifest() {
    assert_snapshot!(mistakes(""));
    assert_snapshot!(mistakes("name = \"x\""));
}

#[test]
fn a_mistake_in_what_is_extended() {
    let folder = Folder::new(&[
        (
            "m.toml",
            "extends = \"base/b.toml\"\n[stage.train]\nlr = \"high\"\n[stage.other]\nkind = \"train\"\nmodel = \"@train\"\npublish = \"out\"\n",
        ),
        (
            "base/b.toml",
            "name = \"x\"\n[stage.train]\nkind = \"train\"\nmodel = \"@nothing\"\npublish = \"out\"\n",
        ),
    ]);
    assert_snapshot!(folder.mistakes(&[]));
}

#[test]
fn manifests_that_cannot_be_read() {
    let folder = Folder::new(&[("m.toml", "extends = \"bse.toml\""), ("base.toml", "")]);
    assert_snapshot!(folder.mistakes(&[]));
    let folder = Folder::new(&[("m.toml", "extends = \"b.toml\""), ("b.toml", "extends = \"./m.toml\"")]);
    assert_snapshot!(folder.mistakes(&[]));
    let folder = Folder::new(&[("n.toml", "")]);
    assert_snapshot!(folder.mistakes(&[]));
}

#[test]
fn settings_from_the_command_line() {
    let folder = Folder::new(&[(
        "m.toml",
        "name = \"x\"\n[vars]\nx = 1\n[arm.lora]\n[stage.data]\nkind = \"data\"\ncount = \"${x}\"\n",
    )]);
    assert_snapshot!(folder.mistakes(&[
        "stage.data.cuont=3",
        "stage.dta.count=3",
        "stage.data.count=three",
        "arm.lroa.data.count=3",
        "vars.y=1",
        "y=1",
        "sead=1",
        "stage.data=1",
        "name.x=1",
        "matrix.seed=[1]",
        "extends=a",
        "nothing",
        "stage.data.kind.x=1",
        "vars.x=nan",
    ]));
}
