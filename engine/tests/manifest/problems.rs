//! What is said about wrong keys, values and names: each snapshot is what a user sees.

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
