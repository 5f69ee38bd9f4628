//! Target `classifier`: what a failure of a model server means.

use std::sync::LazyLock;

use serde_json::json;
use weir::upstream::classify::Classifier;

use crate::chance::Chance;

static CLASSIFIER: LazyLock<Classifier> = LazyLock::new(Classifier::embedded);

/// Only so much of a body is looked at, says [`Classifier::classify`].
const LOOKED_AT: usize = 64 * 1024;

/// The input is a status in two bytes (low one first) and the body of a refusal. Whatever it is, it means something, as it
/// stands and wrapped into the errors of other servers; and what stands beyond the bound changes nothing.
pub fn classifier(input: &[u8]) {
    let Some((status, body)) = input.split_first_chunk() else { return };
    let status = u16::from_le_bytes(*status);
    let meaning = CLASSIFIER.classify(status, body);
    if let Some(start) = body.get(..LOOKED_AT) {
        assert_eq!(CLASSIFIER.classify(status, start), meaning, "the end of a long body decided");
    }
    let mut chance = Chance::of(body);
    let mut wrapped = String::from_utf8_lossy(body).into_owned();
    for _ in 0..=chance.below(4) {
        wrapped = match chance.below(3) {
            0 => json!({"error": {"message": wrapped}}).to_string(),
            1 => format!("data: {}\n\n", json!({"error": wrapped})),
            _ => format!("llama-server: map[code:{status} message:{wrapped} type:server_error]"),
        };
    }
    CLASSIFIER.classify(status, wrapped.as_bytes());
}

/// The input that stands for a refusal.
pub fn classifier_input(status: u16, body: &[u8]) -> Vec<u8> {
    [&status.to_le_bytes()[..], body].concat()
}
