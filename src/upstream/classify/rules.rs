//! The rows of `config/failures.toml` and of a person's own file, and how one is held against what a server said.

use super::Meaning;
use super::shape::{Said, bare_name, plain_words};
use crate::settings::FailureRow;
use serde::Deserialize;

/// The rows that come with Weir.
const EMBEDDED: &str = include_str!("../../../config/failures.toml");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rows {
    failures: Vec<FailureRow>,
}

/// A row made ready: words normalised, alternatives split.
#[derive(Debug, Clone)]
pub(super) struct Rule {
    meaning: Meaning,
    contains: Vec<Vec<String>>,
    unless: Vec<String>,
    kind: Vec<String>,
    code: Vec<String>,
    status: Vec<u16>,
}

impl Rule {
    pub(super) fn meaning(&self) -> Meaning {
        self.meaning
    }

    pub(super) fn matches(&self, status: u16, said: &Said) -> bool {
        let occurs = |fragment: &String| said.message.contains(fragment.as_str());
        (self.status.is_empty() || self.status.contains(&status))
            && (self.kind.is_empty() || self.kind.contains(&said.kind))
            && (self.code.is_empty() || self.code.contains(&said.code))
            && self.contains.iter().all(|alternatives| alternatives.iter().any(occurs))
            && !self.unless.iter().any(occurs)
    }
}

/// The embedded rows as they stand in the file.
pub(super) fn embedded_rows() -> Vec<FailureRow> {
    match toml::from_str::<Rows>(EMBEDDED) {
        Ok(rows) => rows.failures,
        Err(error) => unreachable!("a test reads config/failures.toml: {error}"),
    }
}

/// The embedded rows made ready.
pub(super) fn embedded() -> Vec<Rule> {
    compile(&embedded_rows())
}

/// Makes rows ready, in their order.
pub(super) fn compile(rows: &[FailureRow]) -> Vec<Rule> {
    rows.iter().map(compile_row).collect()
}

fn compile_row(row: &FailureRow) -> Rule {
    let names = |entries: &[String]| entries.iter().map(|entry| bare_name(entry)).collect();
    Rule {
        meaning: row.meaning,
        contains: row.contains.iter().map(|fragment| fragment.split('|').map(words).collect()).collect(),
        unless: row.unless.iter().map(|fragment| words(fragment)).collect(),
        kind: names(&row.kind),
        code: names(&row.code),
        status: row.status.clone(),
    }
}

/// A fragment in the words that messages are compared in, with only those spaces at its ends that it has itself.
fn words(fragment: &str) -> String {
    let plain = plain_words(fragment);
    let mut words = plain.trim_matches(' ').to_owned();
    if fragment.starts_with(' ') {
        words.insert(0, ' ');
    }
    if fragment.ends_with(' ') {
        words.push(' ');
    }
    words
}
