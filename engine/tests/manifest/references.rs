//! What is said about references that lead nowhere, back, or to the same place.

use insta::assert_snapshot;

use crate::toys::{Folder, mistakes};

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
    let folder = Folder::new(&[("m.toml", "extends = [\"b.toml\", 1]"), ("b.toml", "")]);
    assert_snapshot!(folder.mistakes(&[]));
    let base = "name = \"x\"\n[stage.model]\nkind = \"note\"\n";
    let folder =
        Folder::new(&[("m.toml", "extends = \"b.toml\"\nwithout = [\"modle\"]\n"), ("b.toml", base)]);
    assert_snapshot!(folder.mistakes(&[]));
}
