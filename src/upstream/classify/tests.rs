#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::rules::{compile, embedded_rows};
use super::*;

#[test]
fn every_embedded_row_is_the_first_to_match_its_own_example() {
    let rows = embedded_rows();
    let classifier = Classifier { rules: compile(&rows) };
    let mut wrong = Vec::new();
    for (index, row) in rows.iter().enumerate() {
        let number = index + 1;
        let Some(example) = &row.example else {
            wrong.push(format!("row {number} has no example"));
            continue;
        };
        match classifier.first_match(example.status, example.body.as_bytes()) {
            Some(first) if first == index => {}
            Some(first) => wrong.push(format!(
                "row {number} ({:?}) is shadowed by row {}: {}",
                row.contains,
                first + 1,
                example.body
            )),
            None => wrong.push(format!("row {number} does not match its example")),
        }
        if row.seen.as_deref().is_none_or(str::is_empty) {
            wrong.push(format!("row {number} does not say where it was seen"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
