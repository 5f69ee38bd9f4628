//! All kinds of faults: those of the fault matrix whose turn has been read, a few more of a server, and those of a phone.
use super::common::{CANARY, OMITTED, Request, TOKEN, base64, data_uri, heic, image, say, say_to, text, turn, user};
use super::fault::{Fault, Step};
use super::speech::{Dialect, Speech, with_length};
use super::tables::Expected::Error;
use super::tables::{Expected, HANGING, QUICK, Request as Carries, Row};
use serde_json::json;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::OnceLock;

/// A fault of a model server.
#[derive(Clone, Debug)]
pub struct ServerFault {
    /// What happens, and what comes of it.
    pub row: Row,
    /// Whether it lasts until the deadline, or until the phone hangs up.
    pub waits: bool,
    /// How often the server is asked: more than once only where nothing was generated, or nothing but a call or reasoning.
    pub asked: RangeInclusive<usize>,
    /// The server answers well if this stands in what it is asked.
    pub mended_by: &'static str,
}

const ONCE: RangeInclusive<usize> = 1..=1;
const TWICE: RangeInclusive<usize> = 2..=2;
const OFTEN: RangeInclusive<usize> = 1..=100;

/// The faults of a server, by the place that a mark names.
pub fn server_faults() -> &'static [ServerFault] {
    static FAULTS: OnceLock<Vec<ServerFault>> = OnceLock::new();
    FAULTS.get_or_init(|| {
        let of_the_matrix = |row: &Row, waits: bool| {
            let speech = Speech { dialect: Dialect::OpenAi, form: row.form, text: CANARY };
            let fault = (row.fault)(speech);
            // What to do is in the turn's text, so it begins when that was read.
            let is_told = fault.at_accept.is_none() && matches!(fault.steps.first(), Some(Step::ReadAll));
            let asked = match row.name {
                "loading_for_ever" | "refusal_that_repeats_the_question" => OFTEN,
                // On a kept connection it looks as if that had been closed before the turn came.
                _ if fault.looks_stale() => 1..=2,
                _ => ONCE,
            };
            (is_told && row.request == Carries::Text).then_some(ServerFault {
                row: *row,
                waits,
                asked,
                mended_by: NEVER,
            })
        };
        let quick = QUICK.iter().filter_map(|row| of_the_matrix(row, false));
        let hanging = HANGING.iter().filter_map(|row| of_the_matrix(row, true));
        quick.chain(hanging).chain(more()).collect()
    })
}

const NEVER: &str = "\u{0}";

fn more() -> Vec<ServerFault> {
    const FAIL: Expected = Error(502, "upstream_failure");
    const BUSY: Expected = Error(503, "overloaded");
    let fault = |name: &'static str, fault: fn(Speech<'_>) -> Fault, expected: Expected, asked, mended_by| {
        let row =
            Row { name, fault, form: super::speech::Form::Stream, request: Carries::Text, expected: [expected; 4] };
        ServerFault { row, waits: false, asked, mended_by }
    };
    vec![
        fault("status_500", |speech| refusal(speech, 500, "the runner has crashed"), FAIL, ONCE, NEVER),
        fault("status_503", |speech| refusal(speech, 503, "all slots are busy"), BUSY, ONCE, NEVER),
        fault("status_429", |speech| refusal(speech, 429, "too many requests"), BUSY, ONCE, NEVER),
        fault("status_401", |speech| refusal(speech, 401, "who are you?"), FAIL, ONCE, NEVER),
        fault("too_long", too_long, Error(400, "context_too_long"), OFTEN, NEVER),
        fault("too_large", |speech| refusal(speech, 413, "too large"), Error(400, "context_too_long"), ONCE, NEVER),
        fault("no_such_model", no_such_model, Error(400, "model_not_found"), ONCE, NEVER),
        fault("calls_a_tool_for_ever", calls_a_tool, FAIL, TWICE, NEVER),
        fault("calls_a_tool_at_first", calls_a_tool, Expected::Answer, TWICE, "\"role\":\"tool\""),
        fault("reasons_for_ever", only_reasons, FAIL, TWICE, NEVER),
        fault("reasons_at_first", only_reasons, Expected::Answer, TWICE, "think"),
    ]
}

fn sent(bytes: impl Into<Vec<u8>>) -> Fault {
    Fault { steps: vec![Step::Send(bytes.into())], ..Fault::default() }
}

fn refusal(speech: Speech<'_>, status: u16, message: &str) -> Fault {
    sent(with_length(status, "application/json", speech.refusal(message).as_bytes(), ""))
}

fn too_long(speech: Speech<'_>) -> Fault {
    refusal(speech, 400, "Context size has been exceeded.")
}

fn no_such_model(speech: Speech<'_>) -> Fault {
    refusal(speech, 404, "The model does not exist.")
}

fn calls_a_tool(speech: Speech<'_>) -> Fault {
    let arguments = if speech.dialect == Dialect::Ollama { json!({"of": CANARY}) } else { json!("{\"of\":1}") };
    let call = json!({"index": 0, "id": "1", "type": "function", "function": {"name": "look", "arguments": arguments}});
    sent(speech.answer(&(speech.step(json!({"tool_calls": [call]})) + &speech.end("tool_calls") + speech.done_mark())))
}

fn only_reasons(speech: Speech<'_>) -> Fault {
    let key = if speech.dialect == Dialect::Ollama { "thinking" } else { "reasoning_content" };
    sent(speech.answer(&(speech.step(json!({key: CANARY})) + &speech.end("stop") + speech.done_mark())))
}

/// A fault of a phone.
#[derive(Clone, Copy, Debug)]
pub enum PhoneFault {
    /// A request that is refused at once.
    Refused(&'static Refused),
    /// Two turns at once on one connection.
    TwoAtOnce,
    /// A length that ends inside the JSON.
    LiesAboutTheLength,
    /// Bytes that are no HTTP.
    SpeaksNoHttp,
    /// Gone inside the head.
    LeavesInTheHead,
    /// Gone inside the body; cut or ended in order.
    LeavesInTheBody,
    /// Gone while the turn waits for its permit.
    LeavesTheQueue,
}

impl PhoneFault {
    /// What it is called in the summary.
    pub fn name(self) -> String {
        if let Self::Refused(refused) = self { refused.name.to_owned() } else { format!("{self:?}") }
    }
}

/// What a phone asks where it asks for something that is refused.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// Where Weir listens.
    pub address: SocketAddr,
    /// A model that it has.
    pub model: &'a str,
    /// A text with a mark.
    pub text: &'a str,
}

impl Asked<'_> {
    fn request(self, body: impl Into<Vec<u8>>) -> Request {
        Request::new(self.address, "POST", "/v1/chat/completions").token(TOKEN.as_bytes()).body(body)
    }

    fn good(self) -> Request {
        self.request(say_to(self.model, self.text).to_string())
    }

    fn parts(self, part: serde_json::Value) -> Request {
        let mut body = turn(vec![user(vec![text(self.text), part])]);
        body["model"] = self.model.into();
        self.request(body.to_string())
    }
}

/// A request that is refused.
#[derive(Clone, Copy, Debug)]
pub struct Refused {
    name: &'static str,
    /// The request.
    pub request: fn(Asked<'_>) -> Request,
    /// The status of the answer.
    pub status: u16,
    /// Its code.
    pub code: Option<&'static str>,
    /// Whether its body was read, which makes it a turn with a line in the log.
    pub is_turn: bool,
}

const fn unread(name: &'static str, request: fn(Asked<'_>) -> Request, status: u16) -> Refused {
    Refused { name, request, status, code: None, is_turn: false }
}

const fn malformed(name: &'static str, request: fn(Asked<'_>) -> Request) -> Refused {
    Refused { name, request, status: 400, code: None, is_turn: true }
}

const fn coded(name: &'static str, request: fn(Asked<'_>) -> Request, code: &'static str) -> Refused {
    Refused { name, request, status: 400, code: Some(code), is_turn: true }
}

const REFUSED: &[Refused] = &[
    unread("no_token", |asked| asked.good().without("Authorization"), 401),
    unread("wrong_token", |asked| asked.good().token(b"CANARY-7f3a-wrong"), 401),
    unread("two_tokens", |asked| asked.good().add_header("Authorization", "Bearer CANARY-7f3a-wrong"), 401),
    unread("unknown_path", |asked| Request::new(asked.address, "GET", "/v1/chat").token(TOKEN.as_bytes()), 404),
    unread("wrong_method", |asked| Request::new(asked.address, "DELETE", "/v1/models").token(TOKEN.as_bytes()), 405),
    unread("compressed", |asked| asked.good().header("Content-Encoding", "gzip"), 400),
    unread("over_the_cap", |asked| asked.request("").header("Content-Length", "100000000"), 413),
    malformed("half_a_request", |asked| asked.request(say(asked.text).to_string().split_at(60).0)),
    malformed("no_json", |asked| asked.request(format!("\0{CANARY}"))),
    malformed("no_messages", |asked| asked.request("{\"messages\":[]}")),
    malformed("unknown_role", |asked| {
        asked.request(json!({"messages": [{"role": CANARY, "content": asked.text}]}).to_string())
    }),
    malformed("a_key_twice", |asked| asked.request(format!("{{\"messages\":[],\"messages\":[{}]}}", user(asked.text)))),
    malformed("a_part_of_no_known_type", |asked| asked.parts(json!({"type": CANARY, OMITTED: asked.text}))),
    malformed("a_picture_far_away", |asked| asked.parts(image(&format!("http://{CANARY}.example/x.png")))),
    coded("no_model_of_that_name", |asked| asked.request(say_to(CANARY, asked.text).to_string()), "model_not_found"),
    coded(
        "a_picture_of_another_kind",
        |asked| asked.parts(image(&data_uri("image/heic", &heic()))),
        "image_unsupported",
    ),
    malformed("a_picture_that_is_none", |asked| {
        asked.parts(image(&format!("data:image/png;base64,{}!", base64(CANARY.as_bytes()))))
    }),
];

/// The faults of a phone.
pub fn phone_faults() -> Vec<PhoneFault> {
    let refused = REFUSED.iter().map(PhoneFault::Refused);
    let more = [
        PhoneFault::TwoAtOnce,
        PhoneFault::LiesAboutTheLength,
        PhoneFault::SpeaksNoHttp,
        PhoneFault::LeavesInTheHead,
        PhoneFault::LeavesInTheBody,
        PhoneFault::LeavesTheQueue,
    ];
    refused.chain(more).collect()
}
