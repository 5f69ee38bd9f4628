//! LM Studio: the OpenAI dialect; a list of its own tells what a model can see and hold. Its source is closed: what stands here
//! is from its published documentation and its issue tracker, up to 0.4.20.

use serde_json::Value;

use super::{Dialect, Discovery, ModelFacts, Sight, document_of};
use crate::contract::ImageKind;
use crate::upstream::broken::Broken;
use crate::upstream::client::Client;

/// What one of its own lists, neither of which loads a model, tells of a model, or of one loaded instance of it.
struct Told {
    name: String,
    chats: bool,
    sight: Sight,
    context: Option<u64>,
    trained_context: Option<u64>,
}

/// Adds sight and context, and takes out what only embeds. A path that LM Studio does not know is answered with 200 and an
/// error, so it is known by what a list says; a server that has neither list only looks like it and stays an unknown one.
pub(super) async fn complete(client: &Client, discovery: Discovery) -> Result<Discovery, Broken> {
    // There since 0.3.6.
    let mut told = document_of(&client.get("/api/v0/models").await?).ok().and_then(|list| read_v0(&list));
    if told.is_none() {
        // There since 0.4.0.
        told = document_of(&client.get("/api/v1/models").await?).ok().and_then(|list| read_v1(&list));
    }
    let Some(told) = told else { return Ok(discovery) };
    let mut models = discovery.models;
    models.retain_mut(|model| add(model, &told));
    Ok(Discovery { dialect: Dialect::LmStudio, server: Some("LM Studio".to_owned()), models, ..discovery })
}

/// Adds what is told of a model; `false` if that is that it cannot chat.
fn add(model: &mut ModelFacts, told: &[Told]) -> bool {
    let Some(told) = told.iter().find(|told| told.name == model.name) else { return true };
    model.sight = told.sight;
    model.context = told.context;
    model.trained_context = told.trained_context;
    told.chats
}

fn read_v0(list: &Value) -> Option<Vec<Told>> {
    let entries = list.get("data")?.as_array()?;
    let read = |entry: &Value| {
        entry.get("publisher").and(entry.get("compatibility_type"))?;
        let kind = word(entry, "type");
        let loaded = word(entry, "state") == Some("loaded");
        Some(Told {
            name: word(entry, "id")?.to_owned(),
            chats: kind != Some("embeddings"),
            sight: match kind {
                Some("vlm") => Sight::Sees("its type in LM Studio's list"),
                Some("llm") => Sight::Blind("its type in LM Studio's list"),
                _ => Sight::Unknown,
            },
            // What it will hold once it is loaded is nobody's to know: LM Studio may fit it to the memory.
            context: loaded.then(|| count(entry, "/loaded_context_length")).flatten(),
            trained_context: count(entry, "/max_context_length"),
        })
    };
    some_of(entries.iter().filter_map(read).collect())
}

fn read_v1(list: &Value) -> Option<Vec<Told>> {
    let entries = list.get("models")?.as_array()?;
    some_of(entries.iter().filter_map(read_v1_model).flatten().collect())
}

/// A model, and each of its loaded instances, which can be named as well.
fn read_v1_model(entry: &Value) -> Option<Vec<Told>> {
    entry.get("publisher")?;
    let key = word(entry, "key")?;
    let sees = entry.pointer("/capabilities/vision").and_then(Value::as_bool);
    let tell = |name: &str, context| Told {
        name: name.to_owned(),
        chats: word(entry, "type") != Some("embedding"),
        sight: sees.map_or(Sight::Unknown, |sees| Sight::known(sees, "capabilities in LM Studio's list")),
        context,
        trained_context: count(entry, "/max_context_length"),
    };
    let instances = entry.get("loaded_instances").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let context = |instance: &Value| count(instance, "/config/context_length");
    let mut told: Vec<Told> =
        instances.iter().filter_map(|instance| Some(tell(word(instance, "id")?, context(instance)))).collect();
    told.push(tell(key, instances.first().and_then(context)));
    Some(told)
}

/// An answer that describes no model is no list of LM Studio's.
fn some_of(told: Vec<Told>) -> Option<Vec<Told>> {
    (!told.is_empty()).then_some(told)
}

fn word<'a>(entry: &'a Value, key: &str) -> Option<&'a str> {
    entry.get(key)?.as_str()
}

fn count(entry: &Value, pointer: &str) -> Option<u64> {
    entry.pointer(pointer)?.as_u64()
}

/// It documents JPEG, PNG and WebP; WebP fails on its llama.cpp engine (bug tracker 1150, 1839), and a picture that may not arrive
/// is not sent. What no first bytes name is left to its own judgement.
pub(super) fn decodes(kind: ImageKind) -> bool {
    matches!(kind, ImageKind::Jpeg | ImageKind::Png | ImageKind::Unknown)
}
