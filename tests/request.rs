//! The parse of a chat request, held against conversations that are made up and written in every way that JSON allows.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::Value;
use weir::contract::disclosure::{HISTORICAL_IMAGE, OMITTED_ATTACHMENT};
use weir::contract::{self, Conversation, Role};

#[derive(Debug, Clone)]
enum Part {
    Text(String),
    Picture(Vec<u8>),
    /// A part of a type that nobody knows, which only the history may have.
    Unknown,
}

#[derive(Debug, Clone)]
struct Message {
    role: &'static str,
    parts: Vec<Part>,
}

/// How a conversation is written down: each decision is one of these numbers, from the first again after the last.
#[derive(Debug, Clone)]
struct Taste {
    choices: Vec<u8>,
    made: usize,
}

impl Taste {
    fn below(&mut self, end: usize) -> usize {
        self.made += 1;
        usize::from(self.choices[self.made % self.choices.len()]) % end
    }

    fn space(&mut self) -> &'static str {
        ["", "", "", " ", "\n", "\r\n\t"][self.below(6)]
    }

    /// A string, each character in one of the spellings that it has.
    fn string(&mut self, text: &str) -> String {
        let mut literal = String::from("\"");
        for character in text.chars() {
            let short = match character {
                '"' => Some("\\\""),
                '\\' => Some("\\\\"),
                '/' => Some("\\/"),
                '\u{8}' => Some("\\b"),
                '\u{c}' => Some("\\f"),
                '\n' => Some("\\n"),
                '\r' => Some("\\r"),
                '\t' => Some("\\t"),
                _ => None,
            };
            let needs_an_escape = matches!(character, '"' | '\\') || character < ' ';
            match (self.below(5), short) {
                (0, _) => literal.extend(escapes(character, false)),
                (1, _) => literal.extend(escapes(character, true)),
                (2, Some(short)) => literal.push_str(short),
                (_, Some(short)) if needs_an_escape => literal.push_str(short),
                _ if needs_an_escape => literal.extend(escapes(character, false)),
                _ => literal.push(character),
            }
        }
        literal.push('"');
        literal
    }

    /// An object with these pairs in any order, keys in any spelling, and others that nobody knows among them.
    fn object(&mut self, mut pairs: Vec<(&str, String)>) -> String {
        let unknown = [
            ("name", "null"),
            ("detail", "{\"messages\":[],\"url\":3}"),
            ("n", "1e999"),
            ("tool_calls", "\"\\ud800\""),
            ("Role", "[[[[[[[[[]]]]]]]]]"),
            ("", "-12345678901234567890123456789012345678901234567890"),
        ];
        for _ in 0..self.below(3) {
            let (key, value) = unknown[self.below(unknown.len())];
            pairs.insert(self.below(pairs.len() + 1), (key, value.to_owned()));
        }
        let turn = self.below(pairs.len());
        pairs.rotate_left(turn);
        let pairs: Vec<String> = pairs
            .into_iter()
            .map(|(key, value)| {
                let key = if key == "name" { "\"name\\udfff\"".to_owned() } else { self.string(key) };
                format!("{}{key}{}:{}{value}{}", self.space(), self.space(), self.space(), self.space())
            })
            .collect();
        format!("{{{}}}", pairs.join(","))
    }

    fn part(&mut self, part: &Part) -> String {
        match part {
            Part::Text(text) => {
                let pairs = vec![("type", self.string("text")), ("text", self.string(text))];
                self.object(pairs)
            }
            Part::Picture(bytes) => {
                let url = self.string(&data_uri(bytes));
                let image = self.object(vec![("url", url)]);
                let pairs = vec![("type", self.string("image_url")), ("image_url", image)];
                self.object(pairs)
            }
            Part::Unknown => self.object(vec![("type", "\"hologram\"".to_owned()), ("text", "3".to_owned())]),
        }
    }

    fn message(&mut self, message: &Message) -> String {
        let content = match &message.parts[..] {
            [Part::Text(text)] if self.below(2) == 0 => self.string(text),
            parts => {
                let parts: Vec<String> = parts.iter().map(|part| self.part(part)).collect();
                format!("[{}{}]", self.space(), parts.join(","))
            }
        };
        let pairs = vec![("role", self.string(message.role)), ("content", content)];
        self.object(pairs)
    }

    fn request(&mut self, messages: &[Message], model: &str) -> String {
        let messages: Vec<String> = messages.iter().map(|message| self.message(message)).collect();
        let messages = format!("[{}]", messages.join(","));
        let pairs = vec![("messages", messages), ("stream", "false".to_owned()), ("model", self.string(model))];
        format!("{}{}{}", self.space(), self.object(pairs), self.space())
    }
}

fn escapes(character: char, upper: bool) -> impl Iterator<Item = char> {
    let units: Vec<u16> = character.encode_utf16(&mut [0; 2]).to_vec();
    let escape = move |unit| if upper { format!("\\u{unit:04X}") } else { format!("\\u{unit:04x}") };
    units.into_iter().flat_map(move |unit| escape(unit).chars().collect::<Vec<_>>())
}

fn data_uri(bytes: &[u8]) -> String {
    use base64::Engine as _;
    format!("data:image/png;base64,{}", base64::engine::general_purpose::STANDARD.encode(bytes))
}

fn parse(body: &str) -> Result<Conversation, contract::Failure> {
    Conversation::parse(&Bytes::copy_from_slice(body.as_bytes()), None)
}

fn taste() -> impl Strategy<Value = Taste> {
    prop::collection::vec(any::<u8>(), 1..80).prop_map(|choices| Taste { choices, made: 0 })
}

fn text() -> impl Strategy<Value = String> {
    let known = prop::sample::select(vec![
        "\\",
        "\"",
        "/",
        "\0",
        "\u{1f}",
        "\u{7f}",
        "\r\n",
        " ",
        "\u{2028}",
        "\u{feff}",
        "\u{d7ff}\u{e000}",
        "👩‍👩‍👧‍👦",
        "\u{10ffff}",
        "\\ud800",
        "\\u0041",
        "e\u{301}",
    ]);
    let piece = prop_oneof![3 => known.prop_map(str::to_owned), 2 => any::<String>(), 1 => "[a-z ]{1,30}"];
    prop::collection::vec(piece, 0..5).prop_map(|pieces| pieces.concat())
}

fn part() -> impl Strategy<Value = Part> {
    let picture = prop::collection::vec(any::<u8>(), 1..40).prop_map(Part::Picture);
    prop_oneof![3 => text().prop_map(Part::Text), 1 => picture, 1 => Just(Part::Unknown)]
}

fn messages() -> impl Strategy<Value = Vec<Message>> {
    let message = |role: &'static [&'static str]| {
        (prop::sample::select(role), prop::collection::vec(part(), 1..5))
            .prop_map(|(role, parts)| Message { role, parts })
    };
    (prop::collection::vec(message(&["user", "assistant"]), 0..5), message(&["user"])).prop_map(
        |(mut messages, mut current)| {
            current.parts.retain(|part| !matches!(part, Part::Unknown));
            if current.parts.is_empty() {
                current.parts.push(Part::Text(String::new()));
            }
            messages.push(current);
            messages
        },
    )
}

/// The text of a part as anybody reads it who is handed it as a JSON string.
fn read(text: &contract::Text) -> String {
    let literal = [b"\"", text.as_json().as_ref(), b"\""].concat();
    serde_json::from_slice(&literal).unwrap()
}

/// What a part has to become.
fn hold(part: &contract::Part, sent: &Part, history: bool, role: &str) -> Result<(), TestCaseError> {
    let expected = match (part, sent) {
        (contract::Part::Image(image), Part::Picture(bytes)) if !history || role == "user" => {
            let payload = String::from_utf8(image.payload_as_json().to_vec()).unwrap().replace("\\/", "/");
            prop_assert_eq!(data_uri(bytes), format!("data:image/png;base64,{}", payload));
            prop_assert_eq!(image.decoded_size(), bytes.len() as u64);
            return Ok(());
        }
        (_, Part::Text(text)) => text,
        (_, Part::Unknown) => OMITTED_ATTACHMENT,
        (_, Part::Picture(_)) => HISTORICAL_IMAGE,
    };
    match part {
        contract::Part::Text(text) => prop_assert_eq!(read(text), expected),
        contract::Part::Image(_) => prop_assert!(false, "a picture came out of {:?}", sent),
    }
    if let Part::Picture(_) = sent {
        prop_assert!(history && role == "assistant", "a picture was disclosed that could be passed on");
    }
    Ok(())
}

/// Any JSON, with the words of the contract in places where they may or may not belong.
fn json() -> impl Strategy<Value = Value> {
    let word = || {
        prop::sample::select(vec![
            "messages",
            "model",
            "role",
            "content",
            "type",
            "text",
            "image_url",
            "url",
            "user",
            "assistant",
        ])
    };
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        text().prop_map(Value::from),
        word().prop_map(Value::from),
        Just(Value::from(data_uri(b"\x89PNG"))),
    ];
    leaf.prop_recursive(6, 60, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((word(), inner), 0..5)
                .prop_map(|pairs| pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()),
        ]
    })
}

#[test]
fn a_control_character_in_a_key_is_no_json_whatever_else_the_key_holds() {
    for key in ["x\u{1}", "\\u0078\u{1}", "\u{1}\\n", "\\ud800\n", "mess\u{1}\\u0061ges"] {
        for body in [
            format!("{{\"{key}\":1,\"messages\":[{{\"role\":\"user\",\"content\":\"a\"}}]}}"),
            format!("{{\"messages\":[{{\"{key}\":1,\"role\":\"user\",\"content\":\"a\"}}]}}"),
            format!(
                "{{\"messages\":[{{\"role\":\"user\",\"content\":[{{\"{key}\":1,\"type\":\"text\",\"text\":\"a\"}}]}}]}}"
            ),
        ] {
            assert!(parse(&body).is_err(), "{body:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_conversation_is_read_as_it_was_meant_however_it_is_written(
        sent in messages(), model in text(), mut taste in taste()
    ) {
        let body = taste.request(&sent, &model);
        let conversation = parse(&body).map_err(|failure| TestCaseError::fail(failure.message.into_owned()))?;
        prop_assert_eq!(conversation.model.unwrap_or_default(), model);
        prop_assert_eq!(conversation.messages.len(), sent.len());
        let last = sent.len() - 1;
        for (index, (message, sent)) in conversation.messages.iter().zip(&sent).enumerate() {
            prop_assert_eq!(message.role == Role::User, sent.role == "user");
            prop_assert_eq!(message.parts.len(), sent.parts.len());
            for (part, sent_part) in message.parts.iter().zip(&sent.parts) {
                hold(part, sent_part, index < last, sent.role)?;
            }
        }
    }

    #[test]
    fn an_interpreted_key_given_twice_is_refused_however_it_is_spelled(
        sent in messages(), mut taste in taste(), which in 0..7usize
    ) {
        let text = taste.part(&Part::Text("a".to_owned()));
        let twice = |taste: &mut Taste, key: &'static str, value: &str, rest: Vec<(&'static str, String)>| {
            let mut pairs = rest;
            pairs.extend([(key, value.to_owned()), (key, if taste.below(2) == 0 { "null" } else { value }.to_owned())]);
            taste.object(pairs)
        };
        let role = ("role", "\"user\"".to_owned());
        let kind = ("type", "\"text\"".to_owned());
        let url = taste.string(&data_uri(b"GIF89a"));
        // A part, a message, or the request itself, with the key in it twice.
        let part = match which {
            0 => twice(&mut taste, "text", "\"a\"", vec![kind]),
            1 => twice(&mut taste, "type", "\"text\"", vec![("text", "\"a\"".to_owned())]),
            2 => {
                let image = twice(&mut taste, "url", &url, vec![]);
                taste.object(vec![("type", "\"image_url\"".to_owned()), ("image_url", image)])
            }
            _ => text,
        };
        let content = format!("[{part}]");
        let message = match which {
            3 => twice(&mut taste, "content", &content, vec![role]),
            4 => twice(&mut taste, "role", "\"user\"", vec![("content", content)]),
            _ => taste.object(vec![role, ("content", content)]),
        };
        let mut before: Vec<String> = sent.iter().map(|message| taste.message(message)).collect();
        before.push(message);
        let messages = format!("[{}]", before.join(","));
        let body = match which {
            5 => twice(&mut taste, "messages", &messages, vec![]),
            6 => twice(&mut taste, "model", "\"m\"", vec![("messages", messages)]),
            _ => taste.object(vec![("messages", messages)]),
        };
        let failure = parse(&body).err();
        prop_assert_eq!(failure.map(|failure| (failure.status.as_u16(), failure.code)), Some((400, None)), "{}", body);
    }

    #[test]
    fn what_is_no_json_is_refused_wherever_it_breaks_the_rules(
        sent in messages(), mut taste in taste(), place in any::<prop::sample::Index>(),
        wrong in prop::sample::select(vec!["\0", "\u{1f}", "\"", "\\", "\\u12", "\\x", "NaN", "{", "]", ",", "'", "\u{feff}"]),
    ) {
        let mut body = taste.request(&sent, "m");
        let places: Vec<usize> = (0..=body.len()).filter(|&at| body.is_char_boundary(at)).collect();
        body.insert_str(*place.get(&places), wrong);
        if serde_json::from_str::<serde::de::IgnoredAny>(&body).is_err() {
            prop_assert!(parse(&body).is_err(), "{}", body);
        }
    }

    #[test]
    fn no_json_makes_it_panic(value in json()) {
        let _ = parse(&value.to_string());
        let _ = parse(&serde_json::json!({"messages": value}).to_string());
        let _ = parse(&serde_json::json!({"messages": [{"role": "user", "content": value}]}).to_string());
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Conversation::parse(&Bytes::from(bytes), None);
    }
}
