//! SGLang: the OpenAI dialect; it drops pictures without a word where its model takes none, so `/model_info` is asked first.

use serde_json::Value;

use super::{Discovery, Sight, document_of};
use crate::upstream::client::Client;

/// Adds what `/model_info` tells of the one model that it serves (SGLang 0.5). Without that the sight stays unknown.
pub(super) async fn complete(client: &Client, discovery: Discovery) -> Discovery {
    let mut discovery = Discovery { server: Some("SGLang".to_owned()), ..discovery };
    let Ok(fetched) = client.get("/model_info").await else { return discovery };
    let sees = document_of(&fetched).ok().and_then(|info| info.get("has_image_understanding").and_then(Value::as_bool));
    if let Some(sees) = sees {
        for model in &mut discovery.models {
            model.sight = Sight::known(sees, "/model_info has_image_understanding");
        }
    }
    discovery
}
