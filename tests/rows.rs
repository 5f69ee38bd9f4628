//! Every row of the conformance list has an owner: a test named after it, or a line of rows.toml.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const OWNERS: [&str; 5] = ["script", "real", "3", "4", "6"];

/// All rows: 1 to 161, and one that came between.
fn all_rows() -> BTreeSet<String> {
    (1..=161).map(|row| row.to_string()).chain(["138b".to_owned()]).collect()
}

/// The rows that tests are named after, with the names.
fn tested_rows() -> BTreeMap<String, Vec<String>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let mut rows = BTreeMap::<String, Vec<String>>::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "rs") || path.ends_with("rows.rs") {
            continue;
        }
        let source = std::fs::read_to_string(&path).unwrap();
        let mut is_test = false;
        for line in source.lines().map(str::trim) {
            is_test = is_test || line == "#[test]";
            let Some(name) = line.strip_prefix("fn ").and_then(|rest| rest.split_once('(')).map(|(name, _)| name)
            else {
                continue;
            };
            let row = name.strip_prefix("row_").and_then(|rest| rest.split_once('_')).map(|(row, _)| row);
            if let (true, Some(row)) = (is_test, row) {
                let digits = row.chars().take_while(char::is_ascii_digit).count();
                assert_eq!(digits, 3, "{name}: a row is named with three digits");
                let row = row.trim_start_matches('0').to_owned();
                rows.entry(row).or_default().push(name.to_owned());
            }
            is_test = false;
        }
    }
    rows
}

/// The rows that stand in rows.toml, with their owners.
fn listed_rows() -> BTreeMap<String, String> {
    let file: toml::Table = toml::from_str(include_str!("rows.toml")).unwrap();
    let rows = file["rows"].as_table().unwrap();
    rows.iter().map(|(row, owner)| (row.clone(), owner.as_str().unwrap().to_owned())).collect()
}

#[test]
fn every_row_has_exactly_one_kind_of_owner() {
    let (tested, listed) = (tested_rows(), listed_rows());
    let mut problems = Vec::new();
    for row in all_rows() {
        match (tested.get(&row), listed.get(&row)) {
            (None, None) => problems.push(format!("row {row} has no owner")),
            (Some(tests), Some(_)) => problems.push(format!("row {row} is in rows.toml and has {tests:?}")),
            _ => {}
        }
    }
    assert!(problems.is_empty(), "{problems:#?}");
}

#[test]
fn no_test_and_no_line_is_about_a_row_that_does_not_exist() {
    let known = all_rows();
    let strange: Vec<String> =
        tested_rows().into_keys().chain(listed_rows().into_keys()).filter(|row| !known.contains(row)).collect();
    assert!(strange.is_empty(), "{strange:?}");
}

#[test]
fn the_owners_are_known() {
    for (row, owner) in listed_rows() {
        assert!(OWNERS.contains(&owner.as_str()), "row {row}: {owner}");
    }
}
