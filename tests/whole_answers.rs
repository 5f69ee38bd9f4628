//! Whatever a model server says, and in whatever order: the phone gets all of the text, of an answer that came to its end, or a
//! failure. Never a part of it, and never nothing.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::*;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};

/// One thing that a model server says.
#[derive(Clone, Debug)]
enum Said {
    Text(String),
    Reasoning,
    ToolCall,
    /// A finish reason, beside text or not.
    End(&'static str, String),
    Usage,
    Nothing,
    Error,
    /// The `[DONE]` mark, which only event streams have.
    Done,
}

/// How the connection ends.
#[derive(Clone, Copy, Debug)]
enum Close {
    Properly,
    WithoutTheLastChunk,
    Reset,
}

#[derive(Clone, Debug)]
struct Answer {
    said: Vec<Said>,
    close: Close,
    /// How many bytes go into one chunk.
    piece: usize,
}

/// How a server writes what it says.
#[derive(Clone, Copy, PartialEq)]
enum Language {
    OpenAi,
    Ollama,
}

impl Language {
    fn write(self, said: &Said) -> String {
        match self {
            Language::OpenAi => openai(said),
            Language::Ollama => ollama(said),
        }
    }
}

fn openai(said: &Said) -> String {
    let chunk = |delta: Value, reason: Value| {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": reason});
        format!("data: {}\n\n", json!({"id": "x", "choices": [choice]}))
    };
    match said {
        Said::Text(text) => chunk(json!({"content": text}), Value::Null),
        Said::Reasoning => chunk(json!({"reasoning_content": secret("hm")}), Value::Null),
        Said::ToolCall => {
            let call = json!({"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}});
            chunk(json!({"content": null, "tool_calls": [call]}), Value::Null)
        }
        Said::End(reason, text) => chunk(json!({"content": text}), json!(reason)),
        Said::Usage => format!("data: {}\n\n", json!({"choices": [], "usage": {"completion_tokens": 3}})),
        Said::Nothing => ": keep-alive\n\n".to_owned(),
        Said::Error => format!("data: {}\n\n", json!({"error": {"message": secret("CUDA error")}})),
        Said::Done => "data: [DONE]\n\n".to_owned(),
    }
}

fn ollama(said: &Said) -> String {
    let line = |message: Value, reason: Option<&str>| {
        let mut line = json!({"model": "m", "message": message, "done": reason.is_some()});
        if let Some(reason) = reason {
            line["done_reason"] = json!(reason);
        }
        format!("{line}\n")
    };
    match said {
        Said::Text(text) => line(json!({"role": "assistant", "content": text}), None),
        Said::Reasoning => line(json!({"role": "assistant", "content": "", "thinking": secret("hm")}), None),
        Said::ToolCall => {
            line(json!({"content": "", "tool_calls": [{"function": {"name": "f", "arguments": {}}}]}), None)
        }
        Said::End(reason, text) => line(json!({"role": "assistant", "content": text}), Some(reason)),
        Said::Usage | Said::Done => line(json!({"role": "assistant", "content": ""}), None),
        Said::Nothing => "\n".to_owned(),
        Said::Error => format!("{}\n", json!({"error": secret("an error was encountered")})),
    }
}

impl Answer {
    fn script(&self, language: Language) -> Script {
        let body: String = self.said.iter().map(|said| language.write(said)).collect();
        let mut bytes = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
        for piece in body.as_bytes().chunks(self.piece) {
            bytes.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
            bytes.extend_from_slice(piece);
            bytes.extend_from_slice(b"\r\n");
        }
        match self.close {
            Close::Properly => {
                bytes.extend_from_slice(b"0\r\n\r\n");
                Script::steps(vec![Step::Send(bytes)])
            }
            Close::WithoutTheLastChunk => Script::steps(vec![Step::Send(bytes), Step::Close]),
            Close::Reset => Script::steps(vec![Step::Send(bytes), Step::Reset]),
        }
    }

    /// The text that the phone may get, if the answer came to its end.
    fn text(&self, language: Language) -> Option<String> {
        let mut text = String::new();
        // Whether it said that it had ended, and whether anything that came since shows that it had not.
        let (mut ended, mut went_on) = (false, false);
        for said in &self.said {
            match said {
                Said::Text(more) => {
                    text.push_str(more);
                    went_on |= !more.is_empty();
                }
                Said::End(reason, more) => {
                    text.push_str(more);
                    ended = ["stop", "length", "content_filter", "tool_calls"].contains(reason);
                    went_on = false;
                }
                Said::Error if ended && !went_on => return Some(text),
                Said::Error => return None,
                Said::Done if language == Language::OpenAi => return ended.then_some(text),
                Said::Reasoning | Said::ToolCall | Said::Usage | Said::Nothing | Said::Done => {}
            }
        }
        let whole = ended && (!went_on || matches!(self.close, Close::Properly));
        whole.then_some(text)
    }
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[a-z ]{1,8}",
        2 => any::<String>(),
        1 => prop::sample::select(vec!["", " \n", "\0", "\u{200b}", "\u{feff}", "[DONE]", "data: {}\n\n", "{\"done\":true}\n"])
            .prop_map(str::to_owned),
    ]
}

fn answer() -> impl Strategy<Value = Answer> {
    let end = prop::sample::select(vec!["stop", "length", "content_filter", "tool_calls", "error", "abort", "load"]);
    let said = prop_oneof![
        8 => text().prop_map(Said::Text),
        1 => Just(Said::Reasoning),
        1 => Just(Said::ToolCall),
        1 => Just(Said::Usage),
        1 => Just(Said::Nothing),
        1 => Just(Said::Error),
        1 => Just(Said::Done),
        2 => (end.clone(), text()).prop_map(|(end, text)| Said::End(end, text)),
    ];
    let after = prop::collection::vec(
        prop_oneof![Just(Said::Usage), Just(Said::Done), text().prop_map(Said::Text), Just(Said::Error)],
        0..3,
    );
    let close = prop_oneof![3 => Just(Close::Properly), 1 => Just(Close::WithoutTheLastChunk), 1 => Just(Close::Reset)];
    let last = prop::option::weighted(0.7, end.prop_map(|end| Said::End(end, String::new())));
    (prop::collection::vec(said, 0..6), last, after, close, 1..400usize).prop_map(
        |(mut said, last, after, close, piece)| {
            said.extend(last);
            said.extend(after);
            Answer { said, close, piece }
        },
    )
}

/// What shows nothing is no text: the phone would keep a blank answer.
fn is_blank(text: &str) -> bool {
    text.chars().all(|character| {
        character.is_whitespace()
            || character.is_control()
            || "\u{200b}\u{200c}\u{200d}\u{200e}\u{200f}\u{2060}\u{feff}".contains(character)
    })
}

fn hold(weir: &Weir, upstream: &ScriptedUpstream, language: Language, answer: &Answer) -> Result<(), TestCaseError> {
    upstream.always(answer.script(language));
    let response = weir.ok("hi");
    let expected = answer.text(language).filter(|text| !is_blank(text));
    let reply: Value = serde_json::from_slice(&response.body).unwrap();
    let found = reply["choices"][0]["message"]["content"].as_str().map(str::to_owned);
    prop_assert_eq!(&found, &expected);
    prop_assert_eq!(response.status == 200, expected.is_some());
    if expected.is_none() {
        prop_assert!(response.status >= 500, "{}", response.status);
    }
    Ok(())
}

fn run(weir: &Weir, upstream: &ScriptedUpstream, language: Language) {
    let config = Config { cases: 300, failure_persistence: None, max_shrink_iters: 1000, ..Config::default() };
    let result = TestRunner::new(config).run(&answer(), |answer| hold(weir, upstream, language, &answer));
    if let Err(error) = result {
        panic!("{error}");
    }
}

#[test]
fn an_event_stream_is_answered_whole_or_not_at_all() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    run(&weir, &upstream, Language::OpenAi);
}

#[test]
fn a_stream_of_ollama_is_answered_whole_or_not_at_all() {
    let upstream = ScriptedUpstream::ollama();
    let weir = Weir::before(&upstream).kind("ollama").start();
    run(&weir, &upstream, Language::Ollama);
}
