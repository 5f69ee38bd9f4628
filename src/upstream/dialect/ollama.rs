//! Ollama in its own language: `POST /api/chat`, one JSON object a line.
//!
//! Its `/v1` route ignores the context, drops the start of a long conversation without a word, and tears one message with text
//! and picture into two (v0.33.0); the native one does none of that when it is asked with `truncate: false`.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};

use super::{Dialect, Discovery, DiscoveryError, Load, LoadRequest, ModelFacts, Question, Sight, document_of};
use crate::contract::{ImageKind, Message, Role, Text, Usage};
use crate::json::Node;
use crate::settings::Reasoning;
use crate::upstream::body::SlicedBody;
use crate::upstream::client::Client;
use crate::upstream::piece::{End, MOST_CALLS, Piece, ToolCall};

/// Where turns are sent.
pub(super) const CHAT: &str = "/api/chat";

/// What `/api/show` told of a model; asked once for each digest, since the answer holds the whole template and licence.
#[derive(Debug, Default)]
pub struct ShownModels(Mutex<HashMap<String, Shown>>);

#[derive(Debug, Clone, Default)]
struct Shown {
    capabilities: Option<Vec<String>>,
    has_projector: bool,
    trained_context: Option<u64>,
    configured_context: Option<u64>,
    cache_bytes_a_token: Option<u64>,
}

/// Asks what there is: `/api/version`, `/api/tags`, `/api/ps`, and `/api/show` for models not shown before. None of them
/// loads a model.
///
/// # Errors
/// The server is away, or has no native interface.
pub(super) async fn discover(client: &Client, shown: &ShownModels) -> Result<Discovery, DiscoveryError> {
    let tags = document_of(&client.get("/api/tags").await?)?;
    let listed = tags.get("models").ok_or(DiscoveryError::NotUnderstood)?;
    let listed = listed.as_array().map(Vec::as_slice).unwrap_or_default();
    let version = document_of(&client.get("/api/version").await?).ok();
    let running = document_of(&client.get("/api/ps").await?).unwrap_or_default();
    let mut models = Vec::new();
    let mut left_out = Vec::new();
    for entry in listed {
        let word = |key: &str| entry.get(key).and_then(Value::as_str).filter(|word| !word.is_empty());
        let Some(name) = word("name").or(word("model")).filter(|name| !name.chars().any(char::is_control)) else {
            continue;
        };
        // A remote model's answers come from somebody else's machine; whoever wants that can name it as an upstream of its own.
        let is_remote = word("remote_host").or(word("remote_model")).is_some();
        let facts = if is_remote { None } else { read_model(client, shown, name, entry, &running).await? };
        match facts {
            Some(facts) => models.push(facts),
            None => left_out.push(name.to_owned()),
        }
    }
    Ok(Discovery {
        dialect: Dialect::Ollama,
        server: Some("Ollama".to_owned()),
        version: version.as_ref().and_then(|version| version.get("version")?.as_str().map(str::to_owned)),
        models,
        left_out,
        slots: None,
        tagged: true,
        router: false,
    })
}

/// What is known of one model; `None` if it cannot chat.
async fn read_model(
    client: &Client,
    shown: &ShownModels,
    name: &str,
    entry: &Value,
    running: &Value,
) -> Result<Option<ModelFacts>, DiscoveryError> {
    let digest = entry.get("digest").and_then(Value::as_str).filter(|digest| !digest.is_empty());
    let told = show(client, shown, name, digest.unwrap_or(name)).await?;
    let listed = entry.get("capabilities").and_then(Value::as_array).map(|words| read_words(words));
    // The list names fewer of them than the model itself does: thinking and tools are left out (v0.33.0).
    let capabilities = told.as_ref().and_then(|told| told.capabilities.clone()).or(listed);
    let can = |what: &str| capabilities.as_ref().map(|words| words.iter().any(|word| word == what));
    // Servers that told no capabilities told the family: BERT's only embed.
    let family = entry.pointer("/details/family").and_then(Value::as_str).unwrap_or_default();
    if !can("completion").unwrap_or(!family.contains("bert")) {
        return Ok(None);
    }
    let is_this = |model: &&Value| model.get("name").and_then(Value::as_str) == Some(name);
    let loaded = running.get("models").and_then(Value::as_array).and_then(|models| models.iter().find(is_this));
    let effective = loaded.and_then(|model| model.get("context_length")).and_then(Value::as_u64);
    Ok(Some(ModelFacts {
        name: name.to_owned(),
        id: name.to_owned(),
        sight: match (can("vision"), &told) {
            (Some(sees), _) => Sight::known(sees, "Ollama's capabilities"),
            // Before it told capabilities, a vision model came with a projector.
            (None, Some(told)) => Sight::known(told.has_projector, "the projector in Ollama's /api/show"),
            (None, None) => Sight::Unknown,
        },
        context: effective.or(told.as_ref().and_then(|told| told.configured_context)),
        trained_context: told.as_ref().and_then(|told| told.trained_context),
        reasons: told.is_some().then(|| can("thinking")).flatten(),
        cache_bytes_a_token: told.as_ref().and_then(|told| told.cache_bytes_a_token),
        digest: digest.map(str::to_owned),
    }))
}

/// What `/api/show` tells of a model; `None` where it has no answer, which makes a model no less there.
async fn show(client: &Client, shown: &ShownModels, name: &str, digest: &str) -> Result<Option<Shown>, DiscoveryError> {
    let known = shown.0.lock().unwrap_or_else(PoisonError::into_inner).get(digest).cloned();
    if known.is_some() {
        return Ok(known);
    }
    let fetched = client.ask("/api/show", &json!({"model": name})).await?;
    let Ok(document) = document_of(&fetched) else { return Ok(None) };
    let now = read_shown(&document);
    shown.0.lock().unwrap_or_else(PoisonError::into_inner).insert(digest.to_owned(), now.clone());
    Ok(Some(now))
}

fn read_words(words: &[Value]) -> Vec<String> {
    words.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn read_shown(document: &Value) -> Shown {
    let info = document.get("model_info");
    let architecture =
        info.and_then(|info| info.get("general.architecture")).and_then(Value::as_str).unwrap_or_default();
    let number = |key: &str| info.and_then(|info| info.get(format!("{architecture}.{key}"))).and_then(Value::as_u64);
    let families = document.pointer("/details/families").and_then(Value::as_array);
    let old_vision_family = |family: &Value| matches!(family.as_str(), Some("clip" | "mllama"));
    Shown {
        capabilities: document.get("capabilities").and_then(Value::as_array).map(|words| read_words(words)),
        has_projector: document.get("projector_info").is_some_and(|info| !info.is_null())
            || families.is_some_and(|families| families.iter().any(old_vision_family)),
        trained_context: number("context_length"),
        configured_context: document.get("parameters").and_then(Value::as_str).and_then(read_num_ctx),
        cache_bytes_a_token: cache_bytes_a_token(&number),
    }
}

/// The Modelfile's own `num_ctx`, from the lines of its parameters.
fn read_num_ctx(parameters: &str) -> Option<u64> {
    parameters.lines().find_map(|line| line.trim().strip_prefix("num_ctx")?.trim().parse().ok())
}

/// What one token of context costs in the key and value cache at 16 bits, for saying what a context costs in memory.
fn cache_bytes_a_token(number: &impl Fn(&str) -> Option<u64>) -> Option<u64> {
    let heads = number("attention.head_count")?;
    let head = number("attention.key_length").or_else(|| number("embedding_length")?.checked_div(heads))?;
    let key_value_heads = number("attention.head_count_kv").unwrap_or(heads);
    Some(number("block_count")?.checked_mul(key_value_heads)?.checked_mul(head)? * 2 * 2)
}

/// Writes the request. `truncate: false` makes an overflow an honest refusal; the context is the same for every turn,
/// since a value that differs from the loaded one makes Ollama load the model anew; the other options do not.
pub(super) fn encode(question: &Question<'_>) -> SlicedBody {
    let mut body = SlicedBody::with_room_for(question.conversation);
    body.literal("{\"model\":");
    body.json(&question.model);
    body.literal(",\"messages\":[");
    let mut first = true;
    if let Some(text) = question.system_prompt {
        begin_message("system", &mut first, &mut body);
        body.slice(text.as_json());
        body.literal("\"}");
    }
    for message in &question.conversation.messages {
        encode_message(message, &mut first, &mut body);
    }
    encode_unanswered_calls(question.unanswered_calls, &mut body);
    body.literal("],\"stream\":true,\"truncate\":false");
    encode_reasoning(question, &mut body);
    if let Some(keep_alive) = question.keep_alive {
        body.literal(",\"keep_alive\":");
        body.json(&keep_alive_as_json(keep_alive));
    }
    let context = question.context_to_ask_for.map(|tokens| ("num_ctx", json!(tokens)));
    let answer = question.longest_answer.map(|tokens| ("num_predict", json!(tokens)));
    let temperature = question.temperature.map(|temperature| ("temperature", json!(temperature)));
    let options: BTreeMap<_, _> = [context, answer, temperature].into_iter().flatten().collect();
    if !options.is_empty() {
        body.literal(",\"options\":");
        body.json(&options);
    }
    body.literal("}");
    body.finish()
}

/// A generation without a prompt loads the model and generates nothing.
pub(super) fn load_request(load: &Load<'_>) -> LoadRequest {
    let mut body = json!({"model": load.model, "stream": false});
    if let Some(keep_alive) = load.keep_alive {
        body["keep_alive"] = keep_alive_as_json(keep_alive);
    }
    if let Some(tokens) = load.context_to_ask_for {
        body["options"] = json!({"num_ctx": tokens});
    }
    LoadRequest { path: "/api/generate", body }
}

/// A bare number is seconds and must be one in JSON, too; `30m` is a word.
fn keep_alive_as_json(keep_alive: &str) -> Value {
    keep_alive.parse::<i64>().map_or_else(|_| json!(keep_alive), |seconds| json!(seconds))
}

/// A model that does not reason refuses to be told how to, except that `false` is always fine.
fn encode_reasoning(question: &Question<'_>, body: &mut SlicedBody) {
    let may = question.reasons != Some(false);
    match question.reasoning {
        Reasoning::Default => {}
        Reasoning::Off => body.literal(",\"think\":false"),
        Reasoning::Low if may => body.literal(",\"think\":\"low\""),
        Reasoning::Medium if may => body.literal(",\"think\":\"medium\""),
        Reasoning::High if may => body.literal(",\"think\":\"high\""),
        Reasoning::Low | Reasoning::Medium | Reasoning::High => {}
    }
}

/// One message with its pictures beside it. Ollama rewrites a literal `[img…]` in the text of a message that has pictures, so such a
/// message is sent as two, text first.
fn encode_message(message: &Message, first: &mut bool, body: &mut SlicedBody) {
    let has_images = message.images().next().is_some();
    let apart = has_images && message.texts().any(mentions_image_mark);
    let has_text = message.texts().next().is_some();
    let role = match message.role {
        Role::User => "user",
        Role::Assistant => "assistant",
    };
    if has_text || !has_images {
        begin_message(role, first, body);
        for (index, text) in message.texts().enumerate() {
            if index > 0 {
                body.literal("\\n");
            }
            body.slice(text.as_json());
        }
        body.literal("\"");
        if !has_images || apart {
            body.literal("}");
        }
    }
    if has_images {
        if apart || !has_text {
            begin_message(role, first, body);
            body.literal("\"");
        }
        for (index, image) in message.images().enumerate() {
            body.literal(if index == 0 { ",\"images\":[\"" } else { ",\"" });
            body.slice(image.payload_as_json());
            body.literal("\"");
        }
        body.literal("]}");
    }
}

/// Up to the opening quote of the content.
fn begin_message(role: &str, first: &mut bool, body: &mut SlicedBody) {
    body.literal(if std::mem::take(first) { "{\"role\":\"" } else { ",{\"role\":\"" });
    body.literal(role);
    body.literal("\",\"content\":\"");
}

fn mentions_image_mark(text: &Text) -> bool {
    let json = text.as_json();
    if memchr::memmem::find(json, b"\\u00").is_none() {
        return memchr::memmem::find(json, b"[img").is_some();
    }
    // An escape may spell a part of the mark.
    let decoded = serde_json::from_slice::<String>(&[b"\"", &json[..], b"\""].concat());
    decoded.is_ok_and(|text| text.contains("[img"))
}

fn encode_unanswered_calls(calls: &[ToolCall], body: &mut SlicedBody) {
    if calls.is_empty() {
        return;
    }
    let as_sent = |call: &ToolCall| {
        let arguments: Value = serde_json::from_str(&call.arguments).ok().filter(Value::is_object).unwrap_or(json!({}));
        json!({"function": {"name": call.name, "arguments": arguments}})
    };
    let sent: Vec<Value> = calls.iter().map(as_sent).collect();
    body.literal(",");
    body.json(&json!({"role": "assistant", "content": "", "tool_calls": sent}));
    for call in calls {
        body.literal(",");
        body.json(&json!({"role": "tool", "tool_name": call.name, "content": super::NO_SUCH_TOOL}));
    }
}

/// Reads one line of an answer; `None` if it reports a failure.
pub(super) fn decode(document: Node<'_>) -> Option<Piece<'_>> {
    let [message, done, done_reason, error, prompt_tokens, completion_tokens] =
        document.fields(["message", "done", "done_reason", "error", "prompt_eval_count", "eval_count"]);
    if message.is_none() && done.is_none() || error.is_some_and(|error| !error.is_null()) {
        return None;
    }
    let [content, thinking, calls] =
        message.map_or([None; 3], |message| message.fields(["content", "thinking", "tool_calls"]));
    let thinking = thinking.and_then(Node::text).unwrap_or_default();
    let done = done.is_some_and(Node::is_true);
    Some(Piece {
        text: content.and_then(Node::text).unwrap_or_default(),
        reasoning: !thinking.is_empty(),
        tool_calls: calls.map(read_calls).unwrap_or_default(),
        end: done.then(|| match done_reason.and_then(Node::text) {
            // Servers before 0.1.4x say only that they are done.
            None => End::Stop,
            Some(word) => End::from_word(&word),
        }),
        whole: false,
        id: None,
        usage: done.then(|| read_usage(prompt_tokens, completion_tokens)).flatten(),
    })
}

fn read_calls(tool_calls: Node<'_>) -> Vec<ToolCall> {
    let word = |value: Option<Node<'_>>| value.and_then(Node::text).map(Cow::into_owned).unwrap_or_default();
    let mut calls = Vec::new();
    for call in tool_calls.items().into_iter().flatten().take(MOST_CALLS) {
        let [id, function] = call.fields(["id", "function"]);
        let [index, name, arguments] =
            function.map_or([None; 3], |function| function.fields(["index", "name", "arguments"]));
        calls.push(ToolCall {
            index: index.and_then(Node::number).map_or(calls.len(), |index| index as usize),
            id: word(id),
            name: word(name),
            arguments: arguments.map(|arguments| arguments.as_json().to_owned()).unwrap_or_default(),
        });
    }
    calls
}

/// Ollama leaves a count out when it is nought, for a prompt that was cached whole, too.
fn read_usage(prompt_tokens: Option<Node<'_>>, completion_tokens: Option<Node<'_>>) -> Option<Usage> {
    let [prompt_tokens, completion_tokens] =
        [prompt_tokens, completion_tokens].map(|count| count.and_then(Node::number));
    let total_tokens = prompt_tokens.zip(completion_tokens).map(|(prompt, completion)| prompt + completion);
    (prompt_tokens.is_some() || completion_tokens.is_some()).then_some(Usage {
        prompt_tokens,
        completion_tokens,
        total_tokens,
    })
}

/// Ollama turns WebP into PNG itself and hands the rest to llama.cpp (v0.33.0).
pub(super) fn decodes(kind: ImageKind) -> bool {
    !matches!(kind, ImageKind::Heic | ImageKind::Svg | ImageKind::Avif)
}
