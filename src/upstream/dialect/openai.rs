//! The OpenAI chat-completions dialect, as every backend speaks it in its own way: `POST /v1/chat/completions`.

use std::borrow::Cow;

use serde_json::Value;

use super::{DiscoveryError, ModelFacts, Question, base_of_path};
use crate::contract::{ImageKind, Message, Part, Role, Usage};
use crate::json::Node;
use crate::settings::Reasoning;
use crate::upstream::body::SlicedBody;
use crate::upstream::piece::{End, MOST_CALLS, Piece, ToolCall};

/// Where turns are sent.
pub(super) const CHAT: &str = "/v1/chat/completions";

/// Writes the request. Only what the contract and the settings define goes out; an array of parts only where there is a picture, because
/// Ollama's `/v1` tears an array into one message a part.
pub(super) fn encode(question: &Question<'_>) -> SlicedBody {
    let mut body = SlicedBody::with_room_for(question.conversation);
    body.literal("{\"model\":");
    body.json(&question.model);
    body.literal(",\"messages\":[");
    if let Some(text) = question.system_prompt {
        body.literal("{\"role\":\"system\",\"content\":\"");
        body.slice(text.as_json());
        body.literal("\"}");
    }
    for (index, message) in question.conversation.messages.iter().enumerate() {
        if index > 0 || question.system_prompt.is_some() {
            body.literal(",");
        }
        encode_message(message, &mut body);
    }
    encode_unanswered_calls(question.unanswered_calls, &mut body);
    body.literal("],\"stream\":true,\"stream_options\":{\"include_usage\":true}");
    if let Some(tokens) = question.longest_answer {
        body.literal(",\"max_tokens\":");
        body.json(&tokens);
    }
    if let Some(temperature) = question.temperature {
        body.literal(",\"temperature\":");
        body.json(&temperature);
    }
    match question.reasoning {
        Reasoning::Default => {}
        // Two words for one wish: llama.cpp and vLLM hand the first to the chat template, Ollama and LM Studio heed only the second.
        Reasoning::Off => {
            body.literal(",\"chat_template_kwargs\":{\"enable_thinking\":false},\"reasoning_effort\":\"none\"");
        }
        Reasoning::Low => body.literal(",\"reasoning_effort\":\"low\""),
        Reasoning::Medium => body.literal(",\"reasoning_effort\":\"medium\""),
        Reasoning::High => body.literal(",\"reasoning_effort\":\"high\""),
    }
    body.literal("}");
    body.finish()
}

fn encode_message(message: &Message, body: &mut SlicedBody) {
    body.literal(match message.role {
        Role::User => "{\"role\":\"user\",\"content\":",
        Role::Assistant => "{\"role\":\"assistant\",\"content\":",
    });
    if message.images().next().is_some() {
        for (index, part) in message.parts.iter().enumerate() {
            body.literal(if index == 0 { "[" } else { "," });
            encode_part(part, body);
        }
        body.literal("]}");
    } else {
        for (index, text) in message.texts().enumerate() {
            body.literal(if index == 0 { "\"" } else { "\\n" });
            body.slice(text.as_json());
        }
        body.literal("\"}");
    }
}

fn encode_part(part: &Part, body: &mut SlicedBody) {
    match part {
        Part::Text(text) => {
            body.literal("{\"type\":\"text\",\"text\":\"");
            body.slice(text.as_json());
            body.literal("\"}");
        }
        Part::Image(image) => {
            body.literal("{\"type\":\"image_url\",\"image_url\":{\"url\":\"data:");
            body.slice(image.media_type());
            body.literal(";base64,");
            body.slice(image.payload_as_json());
            body.literal("\"}}");
        }
    }
}

/// The second generation after an answer of tool calls alone: the calls, each answered as not available.
fn encode_unanswered_calls(calls: &[ToolCall], body: &mut SlicedBody) {
    if calls.is_empty() {
        return;
    }
    // Some servers give no id, and all of them want one back.
    let id = |call: &ToolCall| if call.id.is_empty() { format!("call_{}", call.index) } else { call.id.clone() };
    let as_sent: Vec<Value> = calls
        .iter()
        .map(|call| {
            let function = serde_json::json!({"name": call.name, "arguments": call.arguments});
            serde_json::json!({"id": id(call), "type": "function", "function": function})
        })
        .collect();
    body.literal(",");
    body.json(&serde_json::json!({"role": "assistant", "content": "", "tool_calls": as_sent}));
    for call in calls {
        body.literal(",");
        body.json(&serde_json::json!({"role": "tool", "tool_call_id": id(call), "content": super::NO_SUCH_TOOL}));
    }
}

/// Reads one document of an answer; `None` if it reports a failure. Only a plain one can be a whole answer.
pub(super) fn decode(document: Node<'_>, plain: bool) -> Option<Piece<'_>> {
    let [choices, id, usage, error, errors, object, detail, words, short_words] =
        document.fields(["choices", "id", "usage", "error", "errors", "object", "detail", "message", "msg"]);
    // Only the first choice is the answer; a stream of several sends them by turns, told apart by their index.
    let mut no_choice = true;
    let mut first = None;
    for choice in choices.and_then(Node::items).into_iter().flatten() {
        no_choice = false;
        if first.is_none() {
            let [index, fields @ ..] = choice.fields(["index", "error", "delta", "message", "finish_reason"]);
            first = (index.and_then(Node::number).unwrap_or(0) == 0).then_some(fields);
        }
    }
    // An `error` beside choices is one, too; the other keys only count where there is no choice.
    let is_there = |value: Option<Node<'_>>| value.is_some_and(|value| !value.is_blank());
    let is_called_an_error = || object.and_then(Node::text).as_deref() == Some("error");
    if is_there(error)
        || is_there(errors)
        || no_choice && (is_called_an_error() || [detail, words, short_words].into_iter().any(is_there))
    {
        return None;
    }
    let mut piece = Piece { id: id.and_then(short_word), usage: usage.and_then(read_usage), ..Piece::default() };
    let Some([error, delta, message, finish_reason]) = first else { return Some(piece) };
    if is_there(error) {
        return None;
    }
    let message = match message.filter(|message| message.is_object()) {
        Some(message) => {
            piece.whole = plain;
            Some(message)
        }
        None => delta,
    };
    piece.end = match finish_reason {
        None => None,
        Some(reason) => match reason.text() {
            Some(word) if !word.is_empty() => Some(End::from_word(&word)),
            // A whole answer that has the field and no word in it was cut (Ollama's repetition guard).
            _ => piece.whole.then_some(End::NotAnEnd),
        },
    };
    if let Some(message) = message {
        // vLLM, Ollama and LM Studio write `reasoning`, llama.cpp and SGLang `reasoning_content`, others `thinking`.
        let [content, reasoning_content, reasoning, thinking, tool_calls, function_call] =
            message.fields(["content", "reasoning_content", "reasoning", "thinking", "tool_calls", "function_call"]);
        let (text, reasoning_parts) = read_content(content)?;
        piece.text = text;
        piece.reasoning = reasoning_parts || [reasoning_content, reasoning, thinking].into_iter().any(is_there);
        piece.tool_calls = read_calls(tool_calls, function_call);
    }
    Some(piece)
}

/// The text of a content, and whether reasoning stood beside it. Content is a string, nothing, or (in odd template paths of
/// llama.cpp, and from fronts) an array of parts, of which only text is the answer. Anything else is no answer.
fn read_content(content: Option<Node<'_>>) -> Option<(Cow<'_, str>, bool)> {
    let Some(content) = content.filter(|content| !content.is_null()) else { return Some((Cow::Borrowed(""), false)) };
    if let Some(text) = content.text() {
        return Some((text, false));
    }
    let mut whole = String::new();
    let mut reasoning = false;
    for part in content.items()? {
        let [kind, text] = part.fields(["type", "text"]);
        let kind = kind.and_then(Node::text);
        if matches!(kind.as_deref(), None | Some("text" | "output_text")) {
            whole.push_str(&text.unwrap_or(part).text()?);
        } else {
            reasoning = true;
        }
    }
    Some((Cow::Owned(whole), reasoning))
}

/// The calls of tools in a message, in today's form and in the one before it, which knew a single call without an id.
fn read_calls(tool_calls: Option<Node<'_>>, function_call: Option<Node<'_>>) -> Vec<ToolCall> {
    let word = |value: Option<Node<'_>>| value.and_then(Node::text).map(Cow::into_owned).unwrap_or_default();
    let read = |index: usize, id: Option<Node<'_>>, function: Option<Node<'_>>| {
        let [name, arguments] = function.map_or([None; 2], |function| function.fields(["name", "arguments"]));
        let arguments = match arguments.filter(|arguments| arguments.is_object()) {
            Some(object) => object.as_json().to_owned(),
            None => word(arguments),
        };
        ToolCall { index, id: word(id), name: word(name), arguments }
    };
    let mut calls = Vec::new();
    let given = tool_calls.and_then(Node::items).into_iter().flatten();
    for (place, call) in given.take(MOST_CALLS).enumerate() {
        let [index, id, function] = call.fields(["index", "id", "function"]);
        calls.push(read(index.and_then(Node::number).map_or(place, |index| index as usize), id, function));
    }
    if let Some(older) = function_call.filter(|call| call.is_object()) {
        calls.push(read(0, None, Some(older)));
    }
    calls
}

/// Counts that are whole numbers; a usage of zeros only is what a server says that counted nothing.
fn read_usage(usage: Node<'_>) -> Option<Usage> {
    let counts = usage.fields(["prompt_tokens", "completion_tokens", "total_tokens"]);
    let [prompt_tokens, completion_tokens, total_tokens] = counts.map(|count| count.and_then(Node::number));
    let counts = [prompt_tokens, completion_tokens, total_tokens];
    let counted = counts.iter().flatten().any(|&count| count > 0);
    counted.then_some(Usage { prompt_tokens, completion_tokens, total_tokens })
}

/// An id short and clean enough for the app to keep it.
fn short_word(id: Node<'_>) -> Option<Cow<'_, str>> {
    let word = id.text()?;
    let is_short = word.len() <= 200 || word.chars().count() <= 200;
    let is_clean = word.bytes().all(|byte| byte.is_ascii_graphic()) || !word.chars().any(char::is_control);
    (!word.is_empty() && is_short && is_clean).then_some(word)
}

/// The list of models as a server gives it.
pub(super) struct List {
    /// Who made the first of them, which is how many servers name themselves.
    pub(super) owner: Option<String>,
    /// The models that can chat.
    pub(super) models: Vec<ModelFacts>,
    /// The ids of those that cannot.
    pub(super) left_out: Vec<String>,
    /// All entries as they came.
    pub(super) entries: Vec<Value>,
}

/// Reads the answer of `GET /v1/models`.
pub(super) fn read_list(list: &Value) -> Result<List, DiscoveryError> {
    let entries = match list.get("data") {
        // Ollama writes null for none.
        Some(Value::Null) => Vec::new(),
        Some(Value::Array(entries)) => entries.clone(),
        _ => return Err(DiscoveryError::NotUnderstood),
    };
    let owner = entries.first().and_then(|entry| entry.get("owned_by")).and_then(Value::as_str).map(str::to_owned);
    let (left_out, models) =
        entries.iter().filter_map(read_model).partition::<Vec<_>, _>(|model| only_embeds(&model.id));
    let left_out = left_out.into_iter().map(|model| model.id).collect();
    Ok(List { owner, models, left_out, entries })
}

/// Whether the list could be Ollama's: its ids all carry a tag, and its owner is a namespace, which may be called anything. A list
/// without a tag is Ollama's only if nobody else signed it.
pub(super) fn may_be_ollamas(list: &List) -> bool {
    let makers = ["llamacpp", "vllm", "sglang", "organization_owner", "tabbyAPI", "me", "koboldcpp", "local"];
    let signed = list.owner.as_deref().is_some_and(|owner| makers.contains(&owner));
    let is_tagged = |entry: &Value| entry.get("id").and_then(Value::as_str).is_some_and(|id| id.contains(':'));
    !signed || list.entries.iter().all(is_tagged)
}

fn read_model(entry: &Value) -> Option<ModelFacts> {
    let id = entry.get("id").or(Some(entry)).and_then(Value::as_str)?;
    if id.is_empty() || id.chars().any(char::is_control) {
        return None;
    }
    let context = [entry.get("max_model_len"), entry.pointer("/meta/n_ctx"), entry.get("context_length")];
    Some(ModelFacts {
        name: id.to_owned(),
        id: base_of_path(id).to_owned(),
        context: context.into_iter().flatten().find_map(Value::as_u64),
        ..ModelFacts::default()
    })
}

/// Nothing in this list tells an embedding model from one that chats, but a word in their names mostly does (LM Studio prefixes
/// them so). The name of whoever published it is no part of that.
fn only_embeds(id: &str) -> bool {
    let name = id.rsplit('/').next().unwrap_or(id).to_ascii_lowercase();
    let mut words = name.split(|character: char| !character.is_ascii_alphanumeric());
    words.any(|word| matches!(word, "embed" | "embedding" | "embeddings" | "reranker" | "rerank"))
}

/// What an unknown backend can be trusted to decode: JPEG and PNG always, the other raster kinds perhaps, these never.
pub(super) fn decodes(kind: ImageKind) -> bool {
    !matches!(kind, ImageKind::Heic | ImageKind::Svg | ImageKind::Avif)
}
