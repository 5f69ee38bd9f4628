//! Whatever has to be mended so that a model server takes a conversation: every byte that the user and the model said arrives,
//! in order, with nothing added but the sentences that stand for what could not be passed on.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::*;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};
use std::fmt::Write as _;

const BEGINNING: &str = "[The beginning of this conversation is not included.]";
const NO_TEXT: &str = "The user sent an image with no accompanying text.";

/// How many models the scripted server has: what one needed is remembered, so some cases meet a fresh one and some do not.
const MODELS: usize = 24;

#[derive(Clone, Debug)]
enum Part {
    Text(String),
    /// A picture, told apart by its shade.
    Picture(u8),
    /// A part of a type that nobody knows, which only the history may have.
    Unknown,
}

#[derive(Clone, Debug)]
struct Message {
    role: &'static str,
    parts: Vec<Part>,
}

/// How the app may write a string in JSON.
#[derive(Clone, Copy, Debug)]
enum Spelling {
    Plain,
    EscapedSlashes,
    AsciiOnly,
    EscapesOnly,
}

/// What the scripted model server insists on, in the order in which it looks.
#[derive(Clone, Copy, Debug)]
enum Demand {
    Alternation,
    UserFirst,
    OnePicture,
}

#[derive(Clone, Debug)]
struct Case {
    model: usize,
    messages: Vec<Message>,
    spelling: Spelling,
    demands: Vec<Demand>,
}

fn quoted(text: &str, spelling: Spelling) -> String {
    let json = serde_json::to_string(text).unwrap();
    let escape = |out: &mut String, text: &str| {
        for unit in text.encode_utf16() {
            write!(out, "\\u{unit:04x}").unwrap();
        }
    };
    let mut out = String::new();
    match spelling {
        Spelling::Plain => out = json,
        Spelling::EscapedSlashes => out = json.replace('/', "\\/"),
        Spelling::AsciiOnly => {
            for character in json.chars() {
                if character.is_ascii() {
                    out.push(character);
                } else {
                    escape(&mut out, character.encode_utf8(&mut [0; 4]));
                }
            }
        }
        Spelling::EscapesOnly => {
            out.push('"');
            escape(&mut out, text);
            out.push('"');
        }
    }
    out
}

impl Case {
    /// The request as the app writes it: a message of one text as a string, any other as parts.
    fn body(&self) -> String {
        let part = |part: &Part| match part {
            Part::Text(text) => format!("{{\"type\":\"text\",\"text\":{}}}", quoted(text, self.spelling)),
            Part::Picture(shade) => image(&png_uri(*shade)).to_string(),
            Part::Unknown => json!({"type": "hologram", "hologram": "x"}).to_string(),
        };
        let message = |message: &Message| {
            let content = match &message.parts[..] {
                [Part::Text(text)] => quoted(text, self.spelling),
                parts => format!("[{}]", parts.iter().map(part).collect::<Vec<_>>().join(",")),
            };
            format!("{{\"role\":\"{}\",\"content\":{content}}}", message.role)
        };
        let messages: Vec<String> = self.messages.iter().map(message).collect();
        format!("{{\"model\":\"m{}\",\"messages\":[{}]}}", self.model, messages.join(","))
    }
}

/// What one side said without a break, however it is split into messages: texts (joined with a line feed where they touch) and
/// pictures.
#[derive(Clone, Debug, PartialEq)]
enum Item {
    Text(String),
    Picture(String),
}

#[derive(Clone, Debug, PartialEq)]
struct Run {
    role: String,
    items: Vec<Item>,
}

/// Puts items into runs. With `apart`, as in Ollama's own form, the pictures of a run stand apart from its text.
fn runs(messages: impl IntoIterator<Item = (String, Vec<Item>)>, apart: bool) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (role, items) in messages {
        if runs.last().is_none_or(|run| run.role != role) {
            runs.push(Run { role, items: Vec::new() });
        }
        let run = runs.last_mut().unwrap();
        for item in items {
            let before = if apart {
                run.items.iter_mut().find(|known| matches!(known, Item::Text(_)))
            } else {
                run.items.last_mut()
            };
            match (before, item) {
                (Some(Item::Text(before)), Item::Text(text)) => {
                    before.push('\n');
                    before.push_str(&text);
                }
                (_, item) => run.items.push(item),
            }
        }
        if apart {
            run.items.sort_by_key(|item| matches!(item, Item::Picture(_)));
        }
    }
    if apart {
        // Beside a picture, an empty text cannot be told from none in Ollama's form.
        for run in runs.iter_mut().filter(|run| run.items.len() > 1) {
            run.items.retain(|item| *item != Item::Text(String::new()));
        }
    }
    runs
}

/// What must arrive: everything, with the sentences of the contract for what is not passed on.
fn expected(case: &Case, pictures_kept: bool, apart: bool) -> Vec<Run> {
    let last = case.messages.len() - 1;
    let messages = case.messages.iter().enumerate().map(|(index, message)| {
        let kept = index == last || (pictures_kept && message.role == "user");
        let item = |part: &Part| match part {
            Part::Text(text) => Item::Text(text.clone()),
            Part::Picture(shade) if kept => Item::Picture(base64(&png(*shade, 0))),
            Part::Picture(_) => Item::Text(DISCLOSURE.to_owned()),
            Part::Unknown => Item::Text(OMITTED.to_owned()),
        };
        (message.role.to_owned(), message.parts.iter().map(item).collect())
    });
    runs(messages, apart)
}

/// What arrived, from either form.
fn arrived(messages: &[Value], apart: bool) -> Vec<Run> {
    let read = |message: &Value| {
        let text = |text: &Value| Item::Text(text.as_str().unwrap().to_owned());
        let mut items = Vec::new();
        match &message["content"] {
            Value::Array(parts) => items.extend(parts.iter().map(|part| match part["type"].as_str().unwrap() {
                "text" => text(&part["text"]),
                _ => {
                    let url = part["image_url"]["url"].as_str().unwrap();
                    Item::Picture(url.strip_prefix("data:image/png;base64,").unwrap().to_owned())
                }
            })),
            // Ollama's form has to have a text, also where there is none.
            content if content == "" && message.get("images").is_some() => {}
            content => items.push(text(content)),
        }
        let pictures = message["images"].as_array().into_iter().flatten();
        items.extend(pictures.map(|picture| Item::Picture(picture.as_str().unwrap().to_owned())));
        (message["role"].as_str().unwrap().to_owned(), items)
    };
    runs(messages.iter().map(read), apart)
}

fn pictures(runs: &[Run]) -> usize {
    runs.iter().flat_map(|run| &run.items).filter(|item| matches!(item, Item::Picture(_))).count()
}

/// What a strict server says to these messages, if it does not take them.
fn objection(messages: &[Value], demands: &[Demand]) -> Option<&'static str> {
    let mut roles: Vec<&Value> = Vec::new();
    for message in messages {
        // A literal picture mark makes Ollama's form put the pictures into a message of their own, which counts as the same one.
        let is_rest = message["content"] == "" && message.get("images").is_some();
        if !is_rest || roles.last().is_none_or(|before| *before != "user") {
            roles.push(&message["role"]);
        }
    }
    demands.iter().find_map(|demand| match demand {
        Demand::Alternation if roles.windows(2).any(|pair| pair[0] == pair[1]) => {
            Some("Conversation roles must alternate user/assistant/user/assistant/...")
        }
        Demand::UserFirst if messages[0]["role"] != "user" => Some("Conversation must start with a user message"),
        Demand::OnePicture if pictures(&arrived(messages, false)) > 1 => Some(
            "At most 1 image(s) may be provided in one prompt. Set `--limit-mm-per-prompt` to increase this limit.",
        ),
        _ => None,
    })
}

fn strict(demands: Vec<Demand>, answer: Script) -> Script {
    Script::from_fn(move |request| match objection(&request.messages(), &demands) {
        Some(words) => Script::json(400, &json!({"error": {"message": words}})).for_request(request),
        None => answer.for_request(request),
    })
}

fn nasty_text() -> impl Strategy<Value = String> {
    let known = prop::sample::select(vec![
        DISCLOSURE,
        OMITTED,
        BEGINNING,
        NO_TEXT,
        "[img-0]",
        "[img",
        "<|im_end|>\n<|im_start|>system\n",
        "{{ messages }}{% if x %}",
        "<think>",
        "</think>",
        "[DONE]",
        "\u{1}\u{7f}\u{9b}",
        "\u{2028}\u{2029}",
        "\\ud800",
        "\\u0000",
        "\\",
        "\"",
        "\r\n",
        "\n",
        " ",
        "\0",
        "👩‍👩‍👧‍👦🏳️‍🌈",
        "\u{202e}مرحبا",
        "e\u{301}\u{feff}",
        "data:image/png;base64,AAAA",
    ]);
    let piece = prop_oneof![
        4 => known.prop_map(str::to_owned),
        2 => any::<String>(),
        1 => "[a-z ]{1,20}",
        1 => (1000usize..6000).prop_map(|length| "long / ".repeat(length / 7)),
    ];
    let texts = prop::collection::vec(piece, 1..4).prop_map(|pieces| pieces.concat());
    texts.prop_filter("the empty text has a message of its own", |text| !text.is_empty())
}

/// Parts of a message; `now` for the current turn, which has one picture at most and no unknown part.
fn parts(now: bool) -> impl Strategy<Value = Vec<Part>> {
    let text = nasty_text().prop_map(Part::Text).boxed();
    let other = prop_oneof![4 => any::<u8>().prop_map(Part::Picture), 1 => Just(Part::Unknown)].boxed();
    let one = (any::<u8>().prop_map(Part::Picture), nasty_text(), any::<bool>()).prop_map(|(picture, text, first)| {
        if first { vec![picture, Part::Text(text)] } else { vec![Part::Text(text), picture] }
    });
    let texts = prop::collection::vec(text.clone(), 1..4);
    if now {
        prop_oneof![3 => texts, 2 => one, 1 => any::<u8>().prop_map(|shade| vec![Part::Picture(shade)])].boxed()
    } else {
        let mixed = prop::collection::vec(prop_oneof![3 => text, 2 => other], 1..5);
        prop_oneof![3 => texts, 3 => mixed, 1 => Just(vec![Part::Text(String::new())])].boxed()
    }
}

fn case() -> impl Strategy<Value = Case> {
    let role = prop::sample::select(vec!["user", "assistant"]);
    let history = prop::collection::vec((role, parts(false)).prop_map(|(role, parts)| Message { role, parts }), 0..7);
    let current = parts(true).prop_map(|parts| Message { role: "user", parts });
    let spelling = prop::sample::select(vec![
        Spelling::Plain,
        Spelling::EscapedSlashes,
        Spelling::AsciiOnly,
        Spelling::EscapesOnly,
    ]);
    let demands = prop::sample::subsequence(vec![Demand::Alternation, Demand::UserFirst, Demand::OnePicture], 0..=3);
    (0..MODELS, history, current, spelling, demands.prop_shuffle()).prop_map(
        |(model, mut messages, current, spelling, demands)| {
            messages.push(current);
            Case { model, messages, spelling, demands }
        },
    )
}

/// Sends the case and compares what arrived.
fn hold(
    weir: &Weir,
    upstream: &ScriptedUpstream,
    answer: &Script,
    case: &Case,
    apart: bool,
) -> Result<(), TestCaseError> {
    upstream.always(strict(case.demands.clone(), answer.clone()));
    let reply = weir.chat_bytes(case.body());
    prop_assert_eq!(reply.status, 200, "{}", String::from_utf8_lossy(&reply.body));
    let messages = upstream.last_chat().messages();
    let mut found = arrived(&messages, apart);
    let kept = pictures(&found) == pictures(&expected(case, true, apart));
    if case.messages[0].role == "assistant" && messages[0] == user(BEGINNING) {
        found.remove(0);
    }
    prop_assert_eq!(found, expected(case, kept, apart));
    Ok(())
}

fn run(weir: &Weir, upstream: &ScriptedUpstream, answer: &Script, apart: bool) {
    let config = Config { cases: 96, failure_persistence: None, max_shrink_iters: 2000, ..Config::default() };
    let result = TestRunner::new(config).run(&case(), |case| hold(weir, upstream, answer, &case, apart));
    if let Err(error) = result {
        panic!("{error}");
    }
}

#[test]
fn every_byte_arrives_at_an_openai_server() {
    let upstream = ScriptedUpstream::llamacpp(true);
    let ids: Vec<String> = (0..MODELS).map(|model| format!("m{model}")).collect();
    let entries: Vec<Value> = ids.iter().map(|id| json!({"id": id, "owned_by": "llamacpp"})).collect();
    upstream.set_models(Script::json(200, &json!({"object": "list", "data": entries})));
    let weir = Weir::in_front_of(&upstream);
    run(&weir, &upstream, &Script::text(REPLY), false);
}

#[test]
fn every_byte_arrives_at_ollama() {
    let upstream = ScriptedUpstream::ollama();
    let entries: Vec<Value> = (0..MODELS)
        .map(|model| json!({"name": format!("m{model}:latest"), "capabilities": ["completion", "vision"]}))
        .collect();
    upstream.set_route("/api/tags", Script::json(200, &json!({"models": entries})));
    let weir = Weir::before(&upstream).kind("ollama").start();
    run(&weir, &upstream, &ollama_answer(REPLY), true);
}

#[test]
fn a_picture_of_the_history_never_counts_as_one_of_the_current_turn() {
    let upstream = ScriptedUpstream::llamacpp(true);
    upstream.always(strict(vec![Demand::Alternation, Demand::OnePicture], Script::text(REPLY)));
    let weir = Weir::in_front_of(&upstream);
    let messages = || vec![user(vec![text("a"), image(&png_uri(1))]), user(vec![text("b"), image(&png_uri(2))])];
    let merged = user(vec![text("a"), text(DISCLOSURE), text("b"), image(&png_uri(2))]);
    // That the roles have to alternate is remembered; that two pictures are too many says nothing about the next conversation.
    for asked in [3, 2] {
        let before = upstream.chat_count();
        weir.chat(&turn(messages())).assert_reply(REPLY);
        assert_eq!(json!(upstream.last_chat().messages()), json!([merged]));
        assert_eq!(upstream.chat_count() - before, asked, "what was needed is remembered");
    }
}

#[test]
fn a_first_message_of_the_model_gets_only_the_one_sentence_before_it() {
    let upstream = ScriptedUpstream::start();
    upstream.always(strict(vec![Demand::UserFirst], Script::text(REPLY)));
    let weir = Weir::in_front_of(&upstream);
    let messages = vec![assistant("a"), assistant("b"), user("c"), user("d")];
    weir.chat(&turn(messages.clone())).assert_reply(REPLY);
    assert_eq!(upstream.last_chat().messages(), [vec![user(BEGINNING)], messages].concat());
    weir.ok("hi").assert_reply(REPLY);
    weir.wait_for_log("turn turn=2 ");
    let log = weir.output();
    assert_eq!(log.matches("repairs=\"begin_with_user\"").count(), 1, "a repair is counted where it was made");
}

#[test]
fn an_overflow_of_one_conversation_does_not_cost_another_its_pictures() {
    let upstream = ScriptedUpstream::llamacpp(true);
    let weir = Weir::in_front_of(&upstream);
    let messages = vec![user(vec![image(&png_uri(1))]), assistant("a"), user("b")];
    upstream.next(Script::refusal(400, "request (4390 tokens) exceeds the available context size (4096 tokens)"));
    weir.chat(&turn(messages.clone())).assert_reply(REPLY);
    assert_eq!(upstream.last_chat().messages()[0], user(DISCLOSURE));
    weir.chat(&turn(messages.clone())).assert_reply(REPLY);
    assert_eq!(upstream.last_chat().messages(), messages);
}

#[test]
fn nothing_is_learned_from_a_fault_of_the_server() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    let words = "Error: Jinja Exception: Conversation roles must alternate user/assistant/user/assistant/...";
    let conversation = turn(vec![user("a"), user("b")]);
    for (status, asked) in [(500, 2), (400, 2), (400, 1)] {
        let script = Script::refusal(status, words);
        let strict = move |request: &common::Recorded| match request.messages().len() {
            1 => Script::text(REPLY).for_request(request),
            _ => script.for_request(request),
        };
        upstream.always(Script::from_fn(strict));
        let before = upstream.chat_count();
        weir.chat(&conversation).assert_reply(REPLY);
        assert_eq!(upstream.chat_count() - before, asked, "after {status}");
    }
}
