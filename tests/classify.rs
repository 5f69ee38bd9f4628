//! The failure classifier against what model servers really say: recorded answers, wordings of other servers and versions, and
//! both in every shape that a body can have.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use proptest::prelude::*;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::LazyLock;
use weir::upstream::classify::{Classifier, FailureRow, Meaning};

static CLASSIFIER: LazyLock<Classifier> = LazyLock::new(Classifier::embedded);

/// The recorded answers: `tests/fixtures/failures/*.jsonl`.
const ANSWERS: [&str; 4] = [
    include_str!("fixtures/failures/llamacpp.jsonl"),
    include_str!("fixtures/failures/ollama.jsonl"),
    include_str!("fixtures/failures/others.jsonl"),
    include_str!("fixtures/failures/vllm.jsonl"),
];

#[derive(Debug, Deserialize)]
struct Answer {
    server: String,
    name: String,
    status: u16,
    body: String,
    expect: Expected,
}

#[derive(Debug, Deserialize)]
struct Expected {
    code: Option<String>,
}

impl Answer {
    /// What the classifier is given: the body of a refusal, or the first event or line of a 200 that has an error in it.
    fn error(&self) -> Option<&str> {
        if self.status >= 400 {
            return Some(&self.body);
        }
        self.body.lines().map(|line| line.strip_prefix("data:").unwrap_or(line).trim()).find(|line| {
            serde_json::from_str::<Value>(line)
                .is_ok_and(|event| event.get("error").is_some_and(|error| !error.is_null()))
        })
    }
}

/// One wording: `tests/fixtures/wordings.jsonl`.
#[derive(Debug, Deserialize)]
struct Wording {
    status: u16,
    body: String,
    meaning: Meaning,
}

static WORDINGS: LazyLock<Vec<Wording>> = LazyLock::new(|| {
    include_str!("fixtures/wordings.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect()
});

/// The codes that the phone may get for a meaning when no mend helps. A body that is too large is the picture's fault or the
/// text's.
fn codes(meaning: Meaning) -> &'static [&'static str] {
    match meaning {
        Meaning::ContextTooLong => &["context_too_long"],
        Meaning::ImageUnsupported | Meaning::ImageUnreadable | Meaning::TooManyImages => &["image_unsupported"],
        Meaning::ImageTooLarge => &["image_too_large"],
        Meaning::BodyTooLarge => &["image_too_large", "context_too_long"],
        Meaning::ModelNotFound => &["model_not_found"],
        Meaning::Busy | Meaning::Loading => &["overloaded"],
        Meaning::Timeout => &["upstream_timeout"],
        Meaning::Credentials
        | Meaning::RolesMustAlternate
        | Meaning::FirstMessageMustBeUser
        | Meaning::EmptyPrompt
        | Meaning::SystemPromptUnsupported
        | Meaning::OutputLimitTooHigh
        | Meaning::WrongAddress
        | Meaning::Failure => &["upstream_failure"],
    }
}

#[test]
fn every_recorded_failure_means_what_the_phone_should_hear() {
    let mut tried = 0;
    let mut wrong = Vec::new();
    for line in ANSWERS.iter().flat_map(|file| file.lines()) {
        let answer: Answer = serde_json::from_str(line).unwrap();
        let Some(error) = answer.error() else {
            continue;
        };
        tried += 1;
        let meaning = CLASSIFIER.classify(answer.status, error.as_bytes());
        let expected = answer.expect.code.as_deref().unwrap_or_default();
        if !codes(meaning).contains(&expected) {
            let (server, name) = (&answer.server, &answer.name);
            wrong.push(format!("{server} {name}: {meaning:?}, but {expected}: {error}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(tried > 100, "only {tried} failures found");
}

#[test]
fn a_mend_is_offered_for_the_recorded_failures_that_have_one() {
    let meaning = |name: &str| {
        let answer: Answer = ANSWERS
            .iter()
            .flat_map(|file| file.lines())
            .map(|line| serde_json::from_str::<Answer>(line).unwrap())
            .find(|answer| answer.name == name)
            .unwrap();
        CLASSIFIER.classify(answer.status, answer.body.as_bytes())
    };
    assert_eq!(meaning("template_alternate"), Meaning::RolesMustAlternate);
    assert_eq!(meaning("template_roles_nested"), Meaning::RolesMustAlternate);
    assert_eq!(meaning("max_tokens_too_large"), Meaning::OutputLimitTooHigh);
    assert_eq!(meaning("image_limit"), Meaning::TooManyImages);
    assert_eq!(meaning("image_limit_zero"), Meaning::ImageUnsupported);
    assert_eq!(meaning("loading_503"), Meaning::Loading);
    assert_eq!(meaning("html_413"), Meaning::BodyTooLarge);
}

#[test]
fn wordings_of_other_servers_and_versions_mean_what_they_say() {
    let wrong: Vec<String> = WORDINGS
        .iter()
        .filter_map(|wording| {
            let meaning = CLASSIFIER.classify(wording.status, wording.body.as_bytes());
            (meaning != wording.meaning).then(|| format!("{meaning:?}, but {wording:?}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn invalid_utf8_is_read_as_far_as_it_can_be() {
    let body = b"{\"error\":{\"message\":\"\xff\xfe prompt is too long \xc3\"}}";
    assert_eq!(CLASSIFIER.classify(400, body), Meaning::ContextTooLong);
}

#[test]
fn only_the_beginning_of_a_long_body_and_of_a_long_message_is_looked_at() {
    let late = format!("{}. The prompt is too long", "x".repeat(3 * 1024));
    assert_eq!(CLASSIFIER.classify(400, late.as_bytes()), Meaning::Failure);
    let long = json!({"error": {"message": "prompt is too long", "trace": "x".repeat(1024 * 1024)}});
    assert_eq!(CLASSIFIER.classify(400, long.to_string().as_bytes()), Meaning::ContextTooLong);
}

#[test]
fn the_reason_of_a_template_counts_and_not_its_source() {
    let source = "{{ raise_exception('the model does not support image input') }}\n".repeat(60);
    let message = format!("{source}Error: Jinja Exception: Conversation roles must alternate user/assistant");
    assert_eq!(CLASSIFIER.classify(500, message.as_bytes()), Meaning::RolesMustAlternate);
}

#[derive(Deserialize)]
struct Config {
    failures: Vec<FailureRow>,
}

fn rows(text: &str) -> Result<Vec<FailureRow>, toml::de::Error> {
    toml::from_str::<Config>(text).map(|config| config.failures)
}

#[test]
fn a_users_own_rows_come_before_the_embedded_ones() {
    let own = rows(
        r#"
        [[failures]]
        contains = ["Kaputt"]
        meaning  = "busy"

        [[failures]]
        contains = ["too long"]
        unless   = ["rope"]
        status   = [418]
        meaning  = "loading"
        "#,
    )
    .unwrap();
    let classifier = Classifier::with_rows(&own).unwrap();
    assert_eq!(classifier.classify(500, b"alles kaputt"), Meaning::Busy);
    let long = b"prompt is too long";
    assert_eq!(classifier.classify(418, long), Meaning::Loading);
    assert_eq!(classifier.classify(400, long), Meaning::ContextTooLong);
    let rope = b"prompt is too long: rope";
    assert_eq!(classifier.classify(418, rope), Meaning::ContextTooLong);
}

#[test]
fn a_row_that_is_not_the_first_to_match_its_example_is_named() {
    let missed = |text: &str| Classifier::with_rows(&rows(text).unwrap()).unwrap_err();
    let sound = "[[failures]]\nmeaning = 'busy'\ncontains = ['kaputt']\n";
    let never =
        format!("{sound}[[failures]]\nmeaning = 'busy'\ncode = ['7']\nexample = {{ status = 500, body = 'x' }}");
    assert_eq!((missed(&never).row, missed(&never).instead), (2, None));
    let late = format!(
        "{sound}[[failures]]\nmeaning = 'loading'\ncontains = ['alles']\nexample = {{ status = 500, body = 'alles kaputt' }}"
    );
    assert_eq!((missed(&late).row, missed(&late).instead), (2, Some(1)));
    assert!(missed(&late).to_string().contains("row 1 matches before it"));
}

/// The message in each shape that an error can have.
fn shapes(status: u16, message: &str) -> Vec<(&'static str, String)> {
    let object = json!({"error": {"message": message, "type": "server_error", "param": null, "code": status}});
    let text = [
        ("error object", object.clone()),
        ("error object, string code", json!({"error": {"message": message, "type": "api_error", "code": "bad"}})),
        ("error object, null code", json!({"error": {"message": message, "type": null, "code": null}})),
        ("error string", json!({"error": message, "error_type": "generation"})),
        ("flat", json!({"object": "error", "message": message, "type": "BadRequest", "param": null, "code": status})),
        ("message", json!({"message": message, "partial_response": {"choices": []}})),
        ("detail string", json!({"detail": message})),
        ("detail array", json!({"detail": [{"type": "value_error", "loc": ["body"], "msg": message, "input": "x"}]})),
        ("detail object", json!({"detail": {"msg": message, "type": "bad_input"}})),
        ("JSON in the message", json!({"error": {"message": object.to_string(), "type": "api_error", "code": null}})),
        ("JSON after words", json!({"error": format!("upstream said: {object}")})),
    ];
    let go = format!("llama-server chat error: map[code:{status} message:{message} type:server_error]");
    let mut shapes: Vec<_> = text.into_iter().map(|(name, body)| (name, body.to_string())).collect();
    shapes.push(("Go map", json!({"error": {"message": go}}).to_string()));
    shapes.push(("plain text", format!("{message}\r\n")));
    shapes.push(("lines of JSON", format!("{{\"done\":false}}\n{object}\n")));
    shapes.push(("event", format!("event: error\ndata: {object}\n\n")));
    shapes
}

#[test]
fn a_message_means_the_same_in_every_shape() {
    let mut wrong = Vec::new();
    // A body that is a shape already is not put into another: more than two wrappings are not unwrapped.
    for wording in WORDINGS.iter().filter(|wording| !wording.body.contains('{')) {
        let message = wording.body.trim_matches('"');
        let plain = CLASSIFIER.classify(wording.status, message.as_bytes());
        for (shape, body) in shapes(wording.status, message) {
            let meaning = CLASSIFIER.classify(wording.status, body.as_bytes());
            if meaning != plain {
                wrong.push(format!("{meaning:?}, not {plain:?}, as {shape}: {body}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

proptest! {
    #[test]
    fn no_bytes_and_no_status_make_it_panic(status: u16, body in prop::collection::vec(any::<u8>(), 0..4096)) {
        CLASSIFIER.classify(status, &body);
    }

    #[test]
    fn no_text_near_to_json_makes_it_panic(status: u16, body in "[{}\\[\\]\":,a-z0-9\\\\ éNaN\u{1F600}\n-]{0,200}|data: \\{\"error\":.{0,50}|map\\[.{0,40}message:.{0,40}") {
        CLASSIFIER.classify(status, body.as_bytes());
    }

    #[test]
    fn a_body_cut_off_anywhere_makes_it_panic_nowhere(index in any::<prop::sample::Index>(), cut in any::<prop::sample::Index>()) {
        let wording = index.get(&WORDINGS);
        for (_, body) in shapes(wording.status, &wording.body) {
            CLASSIFIER.classify(wording.status, &body.as_bytes()[..cut.index(body.len())]);
        }
    }

    #[test]
    fn what_a_validation_error_repeats_of_the_request_does_not_decide(index in any::<prop::sample::Index>()) {
        let echoed = serde_json::to_string(&index.get(&WORDINGS).body).unwrap();
        for message in [
            format!("1 validation error:\n  {{'type': 'string_type', 'loc': 'body.messages.0', 'msg': 'Input should be a valid string', 'input': {echoed}}}"),
            format!("1 validation error for Request\nfield\n  Input should be a valid list [type=list_type, input_value={echoed}, input_type=str]"),
            format!("Invalid value (parameter=messages, value={echoed})"),
            format!("Failed to parse messages: odd; messages = [\n  {{\n    \"content\": {echoed}\n  }}\n]"),
        ] {
            prop_assert_eq!(CLASSIFIER.classify(400, message.as_bytes()), Meaning::Failure);
            let object = json!({"error": {"message": message, "type": "BadRequestError", "code": 400}});
            prop_assert_eq!(CLASSIFIER.classify(400, object.to_string().as_bytes()), Meaning::Failure);
        }
        let detail = json!({"detail": [{"type": "string_type", "loc": ["body"], "msg": "Input should be a valid string", "input": index.get(&WORDINGS).body}]});
        prop_assert_eq!(CLASSIFIER.classify(422, detail.to_string().as_bytes()), Meaning::Failure);
    }
}
