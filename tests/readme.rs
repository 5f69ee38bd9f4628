//! README's table of keys says what the program does: every key is in it, with the default that is built in.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;

const README: &str = include_str!("../README.md");
const DEFAULTS: &str = include_str!("../config/defaults.toml");
const EXAMPLE: &str = include_str!("../adapter.toml.example");

/// The first two columns of the table of keys, without their backticks.
fn rows() -> BTreeMap<String, String> {
    let section = README.split("\n## Configuration\n").nth(1).expect("a section on the configuration");
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| {
        let mut columns = row.split('|').map(|column| column.trim().trim_matches('`').to_owned());
        (columns.by_ref().nth(1).unwrap(), columns.next().unwrap())
    })
    .collect()
}

/// Every value below `table`, under its path as README writes it.
fn flatten(table: &toml::Table, path: &str, found: &mut BTreeMap<String, String>) {
    for (key, value) in table {
        let key = match (key.as_str(), path) {
            ("*", "models.override") => "\"ID\"",
            ("*", _) => "NAME",
            (key, _) => key,
        };
        let path = if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
        match value {
            toml::Value::Table(inner) => flatten(inner, &path, found),
            value => drop(found.insert(path, value.to_string())),
        }
    }
}

#[test]
fn every_default_stands_in_the_table_as_it_is_built_in() {
    let mut defaults = BTreeMap::new();
    flatten(&DEFAULTS.parse().unwrap(), "", &mut defaults);
    assert!(defaults.len() > 15, "{defaults:?}");
    let rows = rows();
    for (key, default) in defaults {
        assert_eq!(rows.get(&key), Some(&default), "{key}");
    }
}

#[test]
fn every_key_of_the_example_is_in_the_table_and_no_other() {
    // A line of the example is a key if it looks like one once the # before it is gone.
    let mut keys = Vec::new();
    let mut table = String::new();
    let mut in_rows = false;
    for line in EXAMPLE.lines().map(|line| line.strip_prefix("# ").unwrap_or(line)) {
        if let Some(name) = line.strip_prefix("[[").and_then(|line| line.strip_suffix("]]")) {
            // Rows under a head in double brackets are the value of one key.
            keys.push(name.to_owned());
            table.clear();
            in_rows = true;
        } else if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            table = name.replace("upstream.local", "upstream.NAME").replace("\"qwen3:14b\"", "\"ID\"") + ".";
            in_rows = false;
        } else if let Some((key, _)) = line.split_once(" = ")
            && key.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
            && !in_rows
        {
            let key = if table == "models.alias." { "NAME" } else { key };
            keys.push(format!("{table}{key}"));
        }
    }
    keys.sort();
    assert_eq!(rows().into_keys().collect::<Vec<_>>(), keys);
}
