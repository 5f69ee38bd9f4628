//! Target `request`: the parse of a chat request, and what is made of it for the model servers.

use bytes::Bytes;
use futures_util::FutureExt as _;
use http_body_util::BodyExt as _;
use serde::de::IgnoredAny;
use serde_json::Value;
use weir::contract::disclosure::{HISTORICAL_IMAGE, OMITTED_ATTACHMENT};
use weir::contract::{Code, Conversation, Failure, Part, Role};
use weir::settings::Reasoning;
use weir::upstream::dialect::{Dialect, Question};

use crate::chance::Chance;
use crate::naive::{self, Tree};

/// Behind any input, this makes a body from which long strings are taken out.
const MORE_THAN_A_SHORT_BODY: usize = 16 * 1024 + 1;

/// The input is the body of a request. Weir must refuse what is no JSON, and otherwise read what the naive reader reads; what it
/// sends on must be JSON with the same texts in it.
pub fn request(input: &[u8]) {
    let mut chance = Chance::of(input);
    let cap = chance.below(200) as u64;
    // The long strings of a large body are taken out before it is read; white space behind it changes nothing else.
    let padding = if chance.below(2) == 0 { 0 } else { MORE_THAN_A_SHORT_BODY };
    let body = Bytes::from([input, &b" ".repeat(padding)[..]].concat());
    for image_cap in [None, Some(cap)] {
        let parsed = Conversation::parse(&body, image_cap);
        if let Err(failure) = &parsed {
            check_failure(failure, image_cap);
        }
        let is_json = std::str::from_utf8(input).is_ok() && serde_json::from_slice::<IgnoredAny>(input).is_ok();
        assert!(is_json || parsed.is_err(), "what is no JSON was read");
        // The tree has no word for a number beyond a double, for half a surrogate pair, or for what is nested deeper than 128.
        if let Ok(tree) = serde_json::from_slice::<Tree>(input) {
            match (&parsed, naive::read(&tree, image_cap)) {
                (Ok(conversation), Ok(expected)) => check_conversation(conversation, &expected),
                (Err(_), Err(naive::Refused)) => {}
                (Ok(_), Err(naive::Refused)) => panic!("a malformed request was read"),
                (Err(failure), Ok(_)) => panic!("a sound request was refused: {}", failure.message),
            }
        }
        if let Ok(mut conversation) = parsed {
            check_encoded(&conversation);
            let current = conversation.messages.len() - 1;
            conversation.disclose_historical_images();
            assert!(conversation.messages[..current].iter().all(|message| message.images().next().is_none()));
            check_encoded(&conversation);
        }
    }
}

fn check_failure(failure: &Failure, image_cap: Option<u64>) {
    match (failure.status.as_u16(), failure.code) {
        (400, None) => {}
        (413, Some(Code::ImageTooLarge)) if image_cap.is_some() => {}
        (status, code) => panic!("a request was refused with {status} {code:?}"),
    }
    assert!(serde_json::from_slice::<Value>(&failure.to_json()).is_ok());
}

fn check_conversation(conversation: &Conversation, expected: &naive::Request) {
    assert_eq!(conversation.model, expected.model);
    assert_eq!(conversation.messages.len(), expected.messages.len());
    for (message, expected) in conversation.messages.iter().zip(&expected.messages) {
        assert_eq!(message.role == Role::User, expected.is_user);
        assert_eq!(message.parts.len(), expected.parts.len());
        for (part, expected) in message.parts.iter().zip(&expected.parts) {
            let sentence = match (part, expected) {
                (Part::Image(image), naive::Part::Picture(picture)) => {
                    picture.assert_is(image);
                    continue;
                }
                (_, naive::Part::Text(text)) => text,
                (_, naive::Part::Disclosed) => HISTORICAL_IMAGE,
                (_, naive::Part::Omitted) => OMITTED_ATTACHMENT,
                (_, naive::Part::Picture(_)) => panic!("a picture was lost"),
            };
            assert_eq!(text_of(part), sentence);
        }
    }
}

fn text_of(part: &Part) -> String {
    let Part::Text(text) = part else { panic!("a text became a picture") };
    let mut literal = vec![b'"'];
    literal.extend_from_slice(text.as_json());
    literal.push(b'"');
    serde_json::from_slice(&literal).expect("a text is JSON string content")
}

/// Every dialect makes JSON of it, of the length that it announces, with every text in it.
fn check_encoded(conversation: &Conversation) {
    for dialect in [Dialect::OpenAi, Dialect::Ollama] {
        let question = Question {
            model: conversation.model.as_deref().unwrap_or("m"),
            conversation,
            reasoning: Reasoning::Default,
            reasons: None,
            context_to_ask_for: Some(4096),
            keep_alive: None,
            unanswered_calls: &[],
            longest_answer: Some(100),
            system_prompt: None,
            temperature: None,
        };
        let body = dialect.encode(&question);
        let announced = http_body::Body::size_hint(&body).exact();
        let sent = body.collect().now_or_never().expect("the body is there").expect("it cannot fail").to_bytes();
        assert_eq!(announced, Some(sent.len() as u64));
        let sent: Value = serde_json::from_slice(&sent).expect("what is sent is JSON");
        assert_eq!(sent["model"], question.model);
        let all: String = sent["messages"].as_array().expect("messages").iter().map(all_text).collect();
        let mut rest = all.as_str();
        for text in conversation.messages.iter().flat_map(|message| &message.parts) {
            if let Part::Text(_) = text {
                let text = text_of(text);
                rest = rest.split_once(&text).unwrap_or_else(|| panic!("a text was lost")).1;
            }
        }
    }
}

/// The texts of one message as it is sent, in order.
fn all_text(message: &Value) -> String {
    match &message["content"] {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        _ => panic!("a message without content"),
    }
}
