//! Tests that hold `config/defaults.toml` and `adapter.toml.example` to what the code knows.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::HashSet;
use std::time::Duration;

use url::Url;

use super::schema::{self, KEYS, Step};
use super::{Environment, Settings, Source, UpstreamSettings, layers, load};
use crate::upstream::classify::Classifier;

const EXAMPLE: &str = include_str!("../../adapter.toml.example");

/// A key of the example with the value it shows, and whether it is switched on.
struct Shown {
    path: Vec<String>,
    value: toml::Value,
}

/// Every `key = value` line of the example, switched on or not, under the last table head, switched on or not. Rows under a
/// head in double brackets are the value of one key.
fn shown() -> Vec<Shown> {
    let mut table: Vec<String> = Vec::new();
    let mut shown = Vec::new();
    let mut in_rows = false;
    for line in EXAMPLE.lines() {
        let line = line.strip_prefix("# ").unwrap_or(line);
        let key = line.split(" = ").next().unwrap_or("");
        let is_key = line.contains(" = ")
            && !key.is_empty()
            && key.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        if let Some(name) = line.strip_prefix("[[").and_then(|rest| rest.strip_suffix("]]")) {
            in_rows = true;
            shown.push(Shown { path: vec![name.to_owned()], value: toml::Value::Array(Vec::new()) });
        } else if line.starts_with('[') && line.ends_with(']') {
            in_rows = false;
            let mut head = toml::Value::Table(toml::from_str(line).unwrap());
            table.clear();
            while let Some((name, inner)) = head.as_table().and_then(|inner| inner.iter().next()) {
                table.push(name.clone());
                head = inner.clone();
            }
        } else if is_key && !in_rows {
            let entry: toml::Table = toml::from_str(line).expect(line);
            let (name, value) = entry.into_iter().next().unwrap();
            let path = table.iter().cloned().chain([name]).collect();
            shown.push(Shown { path, value });
        }
    }
    shown
}

fn default_of(path: &[String]) -> Option<toml::Value> {
    let Step::Value(key) = schema::look_up(path) else {
        panic!("{path:?} is not a key");
    };
    let mut value = toml::Value::Table(toml::from_str(layers::DEFAULTS).unwrap());
    for part in key.path {
        value = value.get(part)?.clone();
    }
    Some(value)
}

#[test]
fn where_the_example_shows_a_default_it_is_the_default() {
    let mut compared = 0;
    for Shown { path, value } in shown() {
        if let Some(default) = default_of(&path) {
            assert_eq!(value, default, "{path:?}");
            compared += 1;
        }
    }
    let mut defaults = 0;
    count_values(&toml::Value::Table(toml::from_str(layers::DEFAULTS).unwrap()), &mut defaults);
    assert_eq!(compared, defaults, "the example shows every default");
}

fn count_values(value: &toml::Value, count: &mut usize) {
    match value {
        toml::Value::Table(inner) => inner.values().for_each(|value| count_values(value, count)),
        _ => *count += 1,
    }
}

#[test]
fn every_key_appears_in_the_example() {
    let known: HashSet<&[&str]> = shown()
        .iter()
        .filter_map(|shown| match schema::look_up(&shown.path) {
            Step::Value(key) => Some(key.path),
            Step::Table | Step::Unknown => None,
        })
        .collect();
    for key in KEYS {
        assert!(known.contains(key.path), "{:?} is missing", key.path);
    }
    assert_eq!(shown().len(), KEYS.len(), "the example shows each key once and nothing else");
}

/// Writes the example, or a version of it, beside a token file and loads it.
fn load_beside_a_token(text: &str) -> Settings {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("adapter.toml");
    std::fs::write(&file, text).unwrap();
    std::fs::write(folder.path().join("adapter.token"), "a-token\n").unwrap();
    load(&Source::File(file), &Environment::default()).unwrap()
}

#[test]
fn the_example_is_a_good_configuration_as_it_stands() {
    let settings = load_beside_a_token(EXAMPLE);
    assert_eq!(settings.port, 8480);
    assert_eq!(settings.tokens.iter().collect::<Vec<_>>(), [b"a-token"]);
    assert_eq!(settings.upstreams[0].url.as_str(), "http://127.0.0.1:11434/");
    assert_eq!(settings.timeouts.turn, Duration::from_secs(285));
}

#[test]
fn the_example_is_a_good_configuration_with_every_key_switched_on() {
    let text: String = EXAMPLE
        .lines()
        .filter(|line| !line.contains("ca_file = ") && !line.contains("key_file = "))
        .map(|line| {
            let bare = line.strip_prefix("# ").unwrap_or(line);
            let is_setting = bare.starts_with('[')
                || bare
                    .split_once(" = ")
                    .is_some_and(|(key, _)| key.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'));
            if is_setting { bare } else { line }
        })
        .flat_map(|line| [line, "\n"])
        .collect();
    let settings = load_beside_a_token(&text);
    assert_eq!(settings.models.alias["home"], "qwen3:14b");
    assert_eq!(settings.models.overrides["qwen3:14b"].context, Some(32_768));
    assert!(settings.metrics.is_some());
    assert_eq!(settings.failures.len(), 1);
    assert!(Classifier::with_rows(&settings.failures).is_ok(), "the row is the first to match its example");
}

#[test]
fn every_default_is_of_a_key_that_is_known() {
    fn check(value: &toml::Value, path: &mut Vec<String>) {
        if let toml::Value::Table(inner) = value {
            for (name, value) in inner {
                path.push(name.clone());
                check(value, path);
                path.pop();
            }
        } else {
            assert!(matches!(schema::look_up(path), Step::Value(_)), "{path:?} is not a key");
        }
    }
    let defaults = toml::Value::Table(toml::from_str(layers::DEFAULTS).unwrap());
    check(&defaults, &mut Vec::new());
}

#[test]
fn a_model_server_that_was_found_has_the_defaults_of_a_configured_one() {
    let url = "http://127.0.0.1:11434";
    let found = UpstreamSettings::new("local", Url::parse(url).unwrap());
    let environment = Environment::from_pairs([("ADAPTER_TOKEN", "t"), ("ADAPTER_UPSTREAM__LOCAL__URL", url)]);
    let configured = load(&Source::Nothing, &environment).unwrap();
    assert_eq!(format!("{found:?}"), format!("{:?}", configured.upstreams[0]));
    assert!(found.certificate_authorities.is_none());
}
