//! The table of scenarios in `tests/README.md` names tests that exist.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use crate::support::files_below;

#[test]
fn the_table_of_scenarios_names_tests_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let sources = [files_below(&root.join("src")), files_below(&root.join("tests"))].concat();
    let mut tests: HashSet<String> = HashSet::new();
    for path in sources.iter().filter(|path| path.extension().is_some_and(|ext| ext == "rs")) {
        let text = fs::read_to_string(path).unwrap();
        let lines = text.lines().filter_map(|line| line.trim_start().strip_prefix("fn ")?.split_once('('));
        tests.extend(lines.map(|(name, _)| name.to_owned()));
    }
    let table = fs::read_to_string(root.join("tests/README.md")).unwrap();
    let mut scenarios = Vec::new();
    for row in table.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| |")) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let number: u32 = cells[1].parse().unwrap();
        scenarios.push(number);
        let named: Vec<&str> = cells[3].split('`').skip(1).step_by(2).collect();
        assert_eq!(named.is_empty(), [28, 30].contains(&number), "{row}");
        for name in named {
            assert!(tests.contains(name), "scenario {number} names {name}, which is no test");
        }
    }
    assert_eq!(scenarios, (1..=35).collect::<Vec<u32>>());
}
