//! That the bundled font has what the charts say.

use super::*;
use std::path::Path;

fn lacking_in(text: &str) -> BTreeSet<char> {
    let mut svg = Svg::new(PAPER);
    for bold in [false, true] {
        svg.text(10.0, 20.0, Face { size: 12.0, fill: "#000000", anchor: "start", bold }, text);
    }
    lacking(parse(&svg.finish(40.0, "")).unwrap().root())
}

/// The labels and titles anywhere in a document.
fn shown(value: &toml::Value, found: &mut String) {
    match value {
        toml::Value::Table(table) => {
            for (name, value) in table {
                match value {
                    toml::Value::String(text) if ["label", "title"].contains(&name.as_str()) => {
                        found.push_str(text)
                    }
                    value => shown(value, found),
                }
            }
        }
        toml::Value::Array(items) => items.iter().for_each(|item| shown(item, found)),
        _ => {}
    }
}

#[test]
fn every_character_of_the_manifests_labels_has_a_glyph() {
    let manifests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests");
    let mut text = String::new();
    for folder in [manifests.clone(), manifests.join("parts")] {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "toml") {
                let document: toml::Value = toml::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
                shown(&document, &mut text);
            }
        }
    }
    assert!(text.contains('λ') && text.len() > 500, "{text}");
    assert_eq!(lacking_in(&text), BTreeSet::new());
}

#[test]
fn every_character_of_the_kept_charts_has_a_glyph() {
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../results");
    let mut charts = 0;
    for entry in walkdir::WalkDir::new(results).into_iter().map(Result::unwrap) {
        if entry.path().extension().is_some_and(|extension| extension == "svg") {
            let svg = std::fs::read_to_string(entry.path()).unwrap();
            assert_eq!(lacking(parse(&svg).unwrap().root()), BTreeSet::new(), "{}", entry.path().display());
            charts += 1;
        }
    }
    assert!(charts >= 6, "{charts}");
}

#[test]
fn a_character_without_a_glyph_is_named() {
    assert_eq!(lacking_in("a ℵ − λ Δ ☃"), BTreeSet::from(['ℵ', '☃']));
    let draw = |text: &str| {
        let mut svg = Svg::new(PAPER);
        svg.text(10.0, 20.0, Face { size: 12.0, fill: "#000000", anchor: "start", bold: true }, text);
        png(&svg.finish(40.0, "")).unwrap()
    };
    assert!(draw("☃ = 1") == draw("U+2603 = 1") && draw("λ = 1") != draw("  = 1"));
}
