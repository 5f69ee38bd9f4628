//! The few sentences that Weir puts into a conversation in the place of what it cannot pass on.
//!
//! Each exists as JSON string content: it needs no escaping, so the same bytes serve inside a JSON string.

/// Stands in for an image of an earlier message, in the same position (contract, "Images": the exact text).
pub const HISTORICAL_IMAGE: &str =
    "An image was attached in this earlier message, but this adapter cannot inspect it. Do not infer its contents.";

/// Stands in for a part of unknown type in an earlier message: content is never dropped silently (contract, Route 2).
pub const OMITTED_ATTACHMENT: &str = "[An attachment of a kind this adapter cannot pass on was omitted here.]";

/// Goes before a first assistant message, for a backend whose template wants a user message first.
pub const MISSING_BEGINNING: &str = "[The beginning of this conversation is not included.]";

/// Takes the place of an empty text beside an image, for a backend that refuses an empty prompt (contract 1.10).
pub const IMAGE_WITHOUT_TEXT: &str = "The user sent an image with no accompanying text.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_sentence_needs_escaping_inside_a_json_string() {
        for sentence in [HISTORICAL_IMAGE, OMITTED_ATTACHMENT, MISSING_BEGINNING, IMAGE_WITHOUT_TEXT] {
            assert_eq!(serde_json::to_string(sentence).unwrap(), format!("\"{sentence}\""));
        }
    }
}
