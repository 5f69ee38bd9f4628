//! The rows of `config/failures.toml` and of a user's own file, and how one is held against what a server said.

use super::Meaning;
use super::shape::{Said, bare_name, plain_words};
use serde::Deserialize;
use thiserror::Error;

/// The rows that come with Weir.
const EMBEDDED: &str = include_str!("../../../config/failures.toml");

/// One row: when all of its conditions hold, the error has its meaning. Rows are tried in order; the first that matches decides.
///
/// Case, white space, hyphens and underscores make no difference anywhere, and "n't" is the same as " not".
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// What the error means.
    pub meaning: Meaning,
    /// Fragments that must all occur in the message, in any order. A `|` separates alternatives: `"too long|too big"`. A space
    /// at an end stands for the edge of a word.
    #[serde(default)]
    pub contains: Vec<String>,
    /// Fragments of which none may occur in the message.
    #[serde(default)]
    pub unless: Vec<String>,
    /// The type must be one of these; any, or none, when empty.
    #[serde(default, rename = "type")]
    pub kind: Vec<String>,
    /// The code must be one of these (numbers written as strings); any, or none, when empty.
    #[serde(default)]
    pub code: Vec<String>,
    /// The HTTP status must be one of these; any when empty.
    #[serde(default)]
    pub status: Vec<u16>,
    /// Which server says this, and in which version: for the reader.
    pub seen: Option<String>,
    /// An answer that this row is the first to match. Every embedded row has one, and a test holds it to it.
    pub example: Option<Example>,
}

/// An answer that a row is meant for.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Example {
    /// The HTTP status, 200 for an error inside a stream.
    pub status: u16,
    /// The body, or just the message: a plain text body is a message too.
    pub body: String,
}

/// A row that makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("row {row} of [[failures]]: `{field}` {problem}")]
pub struct RuleError {
    /// Which row, counted from 1.
    pub row: usize,
    /// Which of its fields.
    pub field: &'static str,
    /// What is wrong with it, to be read after the field's name.
    pub problem: &'static str,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rows {
    failures: Vec<Row>,
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
pub(super) fn embedded_rows() -> Vec<Row> {
    match toml::from_str::<Rows>(EMBEDDED) {
        Ok(rows) => rows.failures,
        Err(error) => unreachable!("a test reads config/failures.toml: {error}"),
    }
}

/// The embedded rows made ready.
pub(super) fn embedded() -> Vec<Rule> {
    match compile(embedded_rows()) {
        Ok(rules) => rules,
        Err(error) => unreachable!("a test reads config/failures.toml: {error}"),
    }
}

/// Makes rows ready, in their order.
pub(super) fn compile(rows: Vec<Row>) -> Result<Vec<Rule>, RuleError> {
    rows.into_iter()
        .enumerate()
        .map(|(index, row)| compile_row(row).map_err(|(field, problem)| RuleError { row: index + 1, field, problem }))
        .collect()
}

fn compile_row(row: Row) -> Result<Rule, (&'static str, &'static str)> {
    if row.contains.is_empty() && row.kind.is_empty() && row.code.is_empty() && row.status.is_empty() {
        return Err(("contains", "is missing, and so are `type`, `code` and `status`: the row would match everything"));
    }
    if row.status.iter().any(|status| !(100..600).contains(status)) {
        return Err(("status", "is not an HTTP status"));
    }
    let contains = row
        .contains
        .iter()
        .map(|fragment| fragment.split('|').map(words).collect::<Option<Vec<_>>>())
        .collect::<Option<Vec<_>>>()
        .ok_or(("contains", "has an empty fragment, which is in every message"))?;
    let unless = row
        .unless
        .iter()
        .map(|fragment| words(fragment))
        .collect::<Option<Vec<_>>>()
        .ok_or(("unless", "has an empty fragment, which is in every message"))?;
    Ok(Rule {
        meaning: row.meaning,
        contains,
        unless,
        kind: names(&row.kind).ok_or(("type", "has an entry without letters or digits"))?,
        code: names(&row.code).ok_or(("code", "has an entry without letters or digits"))?,
        status: row.status,
    })
}

/// A fragment in the words that messages are compared in, with only those spaces at its ends that it has itself.
fn words(fragment: &str) -> Option<String> {
    let plain = plain_words(fragment);
    let mut words = plain.trim_matches(' ').to_owned();
    if words.is_empty() {
        return None;
    }
    if fragment.starts_with(' ') {
        words.insert(0, ' ');
    }
    if fragment.ends_with(' ') {
        words.push(' ');
    }
    Some(words)
}

fn names(entries: &[String]) -> Option<Vec<String>> {
    entries.iter().map(|entry| Some(bare_name(entry)).filter(|name| !name.is_empty())).collect()
}
