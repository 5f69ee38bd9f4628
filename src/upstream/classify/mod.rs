//! What a refusal or an error of a model server means.
//!
//! Servers disagree on everything but English: the same overflow arrives as 400, 413, 422, 500 or inside a 200 stream, in eight
//! shapes of body, and at times as JSON inside a string inside JSON. So the body is first brought down to the innermost message
//! (`shape`), and that is then held against an ordered list of rows (`rules`; the list itself is `config/failures.toml`).

mod rules;
mod shape;

pub use crate::settings::{FailureExample, FailureRow, Meaning};

use rules::Rule;

/// The rows, ready to be held against answers. Built once, then shared.
#[derive(Debug, Clone)]
pub struct Classifier {
    rules: Vec<Rule>,
}

impl Classifier {
    /// The rows that come with Weir.
    pub fn embedded() -> Self {
        Self { rules: rules::embedded() }
    }

    /// A person's own rows, in their order, and after them the rows that come with Weir: the person's word counts first.
    ///
    /// # Errors
    /// The first row that is not the first to match its own example.
    pub fn with_rows(rows: &[FailureRow]) -> Result<Self, MissedExample> {
        let mut rules = rules::compile(rows);
        rules.extend(rules::embedded());
        let classifier = Self { rules };
        for (index, example) in rows.iter().enumerate().filter_map(|(index, row)| Some((index, row.example.as_ref()?)))
        {
            let first = classifier.first_match(example.status, example.body.as_bytes());
            if first != Some(index) {
                let instead = first.filter(|first| *first < index).map(|first| first + 1);
                return Err(MissedExample { row: index + 1, instead });
            }
        }
        Ok(classifier)
    }

    /// What an answer means.
    ///
    /// `status` is the HTTP status of the answer (200 for an error inside a stream); `body` the raw bytes of the error's body, or
    /// of the JSON of one event of a stream. Pure, bounded (at most 64 KiB are looked at), and never panics, whatever the bytes.
    /// What no row knows is a [`Meaning::Failure`].
    pub fn classify(&self, status: u16, body: &[u8]) -> Meaning {
        match self.first_match(status, body) {
            Some(index) => self.rules[index].meaning(),
            None => Meaning::Failure,
        }
    }

    fn first_match(&self, status: u16, body: &[u8]) -> Option<usize> {
        let said = shape::said(body);
        let status = real_status(status, said.status);
        self.rules.iter().position(|rule| rule.matches(status, &said))
    }
}

/// The status that the failure itself has. An error inside a 200 stream tells its own in its code, and a server that wraps
/// another one's error into a 500 or 502 hides the first one's status there; any other status says more than the body.
fn real_status(answered: u16, told: Option<u16>) -> u16 {
    match told {
        Some(told) if answered < 400 || answered == 500 || answered == 502 => told,
        _ => answered,
    }
}

/// A row that does not do what its own example shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("[[failures]], row {row}, example: found an answer that {}; accepted: one that this row is the first to match", self.why())]
pub struct MissedExample {
    /// Which row, counted from 1.
    pub row: usize,
    /// The earlier row that matches instead, if one does.
    pub instead: Option<usize>,
}

impl MissedExample {
    fn why(&self) -> String {
        match self.instead {
            Some(earlier) => format!("row {earlier} matches before it"),
            None => "the row does not match".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests;
