//! The body of `GET /v1/models`.

use serde::Serialize;

/// One advertised model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedModel {
    /// The id that a request may name; non-empty, without control characters.
    pub id: String,
    /// Whether the model accepts pictures; `None` where that is unknown, and then nothing is said about it: unknown is
    /// not text-only (contract, "Capability signaling").
    pub images: Option<bool>,
}

/// Writes the list in the envelope that the app's probe requires.
pub fn to_json(models: &[ListedModel]) -> Vec<u8> {
    #[derive(Serialize)]
    struct Body<'a> {
        object: &'static str,
        data: Vec<Entry<'a>>,
    }
    #[derive(Serialize)]
    struct Entry<'a> {
        id: &'a str,
        object: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        conduck: Option<Capabilities>,
    }
    #[derive(Serialize)]
    struct Capabilities {
        input_modalities: &'static [&'static str],
    }
    let data = models
        .iter()
        .map(|model| Entry {
            id: &model.id,
            object: "model",
            conduck: model
                .images
                .map(|images| Capabilities { input_modalities: if images { &["text", "image"] } else { &["text"] } }),
        })
        .collect();
    serde_json::to_vec(&Body { object: "list", data }).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_capability_is_left_out() {
        let model = |id: &str, images| ListedModel { id: id.into(), images };
        let body = to_json(&[model("a", None), model("b", Some(false)), model("c", Some(true))]);
        assert_eq!(
            String::from_utf8(body).unwrap(),
            r#"{"object":"list","data":[{"id":"a","object":"model"},{"id":"b","object":"model","conduck":{"input_modalities":["text"]}},{"id":"c","object":"model","conduck":{"input_modalities":["text","image"]}}]}"#
        );
    }
}
