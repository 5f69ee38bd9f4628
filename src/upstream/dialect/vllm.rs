//! vLLM: the OpenAI dialect; `/tokenize` tells without generating what a model can see and how long a conversation is.

use serde_json::{Value, json};

use super::{Dialect, Discovery, Sight, document_of, probe_image};
use crate::contract::ImageKind;
use crate::upstream::broken::Broken;
use crate::upstream::client::{Client, Fetched};

/// Adds the version, and for each model its sight and context. What a question brings no answer to stays unknown.
pub(super) async fn complete(client: &Client, discovery: Discovery, entries: &[Value]) -> Discovery {
    let version = client.get("/version").await.ok().and_then(|version| document_of(&version).ok());
    let version = version.as_ref().and_then(|version| version.get("version")?.as_str().map(str::to_owned));
    let mut discovery = Discovery { dialect: Dialect::Vllm, server: Some("vLLM".to_owned()), version, ..discovery };
    for model in &mut discovery.models {
        model.context = model.context.or_else(|| context_of_parent(&model.name, entries));
        model.sight = ask_to_tokenize_image(client, &model.name).await.map_or(Sight::Unknown, |answer| sight(&answer));
    }
    discovery
}

/// An adapter (LoRA) has no context of its own, but that of the model it stands on.
fn context_of_parent(name: &str, entries: &[Value]) -> Option<u64> {
    let entry = |id: &str| entries.iter().find(|entry| entry.get("id").and_then(Value::as_str) == Some(id));
    let parent = entry(name)?.get("parent")?.as_str()?;
    entry(parent)?.get("max_model_len")?.as_u64()
}

/// Renders a chat with a picture the way a turn would be, without touching the model (vLLM 0.33, tokenize/serving.py:76).
async fn ask_to_tokenize_image(client: &Client, model: &str) -> Result<Fetched, Broken> {
    let content = json!([
        {"type": "text", "text": "x"},
        {"type": "image_url", "image_url": {"url": probe_image::DATA_URI}}
    ]);
    client.ask("/tokenize", &json!({"model": model, "messages": [{"role": "user", "content": content}]})).await
}

fn sight(answer: &Fetched) -> Sight {
    const HOW: &str = "/tokenize with a picture";
    // Judged by what it says: a front may answer anything with 200.
    if document_of(answer).is_ok_and(|told| told.get("count").is_some_and(Value::is_u64)) {
        return Sight::Sees(HOW);
    }
    let says = String::from_utf8_lossy(&answer.body).to_lowercase();
    let refusals = ["not a multimodal model", "at most 0 image", "not support image", "image input is not supported"];
    let refused = answer.status.is_client_error() && refusals.iter().any(|words| says.contains(words));
    if refused { Sight::Blind(HOW) } else { Sight::Unknown }
}

/// Pillow reads nearly everything but these (vLLM 0.33, multimodal/media/image.py).
pub(super) fn decodes(kind: ImageKind) -> bool {
    !matches!(kind, ImageKind::Heic | ImageKind::Svg)
}
