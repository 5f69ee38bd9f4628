//! llama.cpp's `llama-server`: the OpenAI dialect, and `/props`, which tells what a model can see and hold.

use serde_json::{Value, json};

use super::{Dialect, Discovery, DiscoveryError, Load, LoadRequest, ModelFacts, Sight, document_of};
use crate::contract::ImageKind;
use crate::upstream::client::Client;

/// Adds what `/props` knows (llama.cpp 0c1e57098, server-context.cpp:4580): sight, context of one slot, slots. A router serves many
/// models and tells their sight in the list itself.
pub(super) async fn complete(
    client: &Client,
    mut discovery: Discovery,
    entries: &[Value],
) -> Result<Discovery, DiscoveryError> {
    discovery.dialect = Dialect::LlamaCpp;
    discovery.server = Some("llama.cpp".to_owned());
    // A front may show no more than /v1: then what the list says is all there is.
    let props = match document_of(&client.get("/props").await?) {
        Err(loading @ DiscoveryError::Loading) => return Err(loading),
        props => props.unwrap_or_default(),
    };
    discovery.version = props.get("build_info").and_then(Value::as_str).map(str::to_owned);
    if props.get("role").and_then(Value::as_str) == Some("router") {
        discovery.router = true;
        for model in &mut discovery.models {
            let entry = entries.iter().find(|entry| entry.get("id").and_then(Value::as_str) == Some(&model.name));
            read_architecture(model, entry);
        }
        return Ok(discovery);
    }
    discovery.slots = props.get("total_slots").and_then(Value::as_u64).and_then(|slots| u32::try_from(slots).ok());
    let vision = props.pointer("/modalities/vision").and_then(Value::as_bool);
    let context = props.pointer("/default_generation_settings/n_ctx").and_then(Value::as_u64);
    // A template that knows how not to think belongs to a model that does.
    let template = props.get("chat_template").and_then(Value::as_str).unwrap_or_default();
    let reasons =
        ["enable_thinking", "<think>", "<|channel|>"].iter().any(|mark| template.contains(mark)).then_some(true);
    for model in &mut discovery.models {
        if let Some(sees) = vision {
            model.sight = Sight::known(sees, "/props modalities.vision");
        }
        model.context = context.or(model.context);
        model.reasons = reasons;
    }
    Ok(discovery)
}

fn read_architecture(model: &mut ModelFacts, entry: Option<&Value>) {
    let modalities = entry.and_then(|entry| entry.pointer("/architecture/input_modalities"));
    if let Some(modalities) = modalities.and_then(Value::as_array) {
        let sees = modalities.iter().any(|modality| modality.as_str() == Some("image"));
        model.sight = Sight::known(sees, "/v1/models architecture.input_modalities");
    }
}

/// Has a router start the model; it answers before that is done.
pub(super) fn load_request(load: &Load<'_>) -> LoadRequest {
    LoadRequest { path: "/models/load", body: json!({"model": load.model}) }
}

/// What stb_image reads. WebP is read only by builds with ffmpeg, which nothing tells, so it is declined.
pub(super) fn decodes(kind: ImageKind) -> bool {
    !matches!(kind, ImageKind::Heic | ImageKind::Svg | ImageKind::Avif | ImageKind::WebP)
}
