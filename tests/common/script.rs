//! What the scripted model server does with one request, as a list of steps.
use super::CANARY;
use super::recorded::Recorded;
use serde_json::{Value, json};
use std::fmt;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// One thing that the model server does.
#[derive(Clone, Debug)]
pub enum Step {
    /// Write these bytes.
    Send(Vec<u8>),
    /// Let this much time pass (noticing a hang-up meanwhile).
    Wait(Duration),
    /// Go on when the test opens the gate.
    WaitFor(Gate),
    /// Write these bytes again and again, with pauses, until the other side hangs up.
    Dribble(Vec<u8>, Duration),
    /// Say nothing more until the other side hangs up.
    Hang,
    /// Close the connection in an orderly way.
    Close,
    /// Cut the connection with a reset.
    Reset,
}

/// Opened by the test when the model server may go on.
#[derive(Clone, Debug, Default)]
pub struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    /// A closed gate.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets everybody through, now and later.
    pub fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }

    /// Whether it was opened within `patience`.
    pub fn wait(&self, patience: Duration) -> bool {
        let open = self.0.0.lock().unwrap();
        *self.0.1.wait_timeout_while(open, patience, |open| !*open).unwrap().0
    }
}

type Steps = dyn Fn(&Recorded) -> Vec<Step> + Send + Sync;

/// Makes the steps for a request.
#[derive(Clone)]
pub struct Script(Arc<Steps>);

impl fmt::Debug for Script {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Script")
    }
}

impl Script {
    /// Decides by the request.
    pub fn from_fn(decide: impl Fn(&Recorded) -> Vec<Step> + Send + Sync + 'static) -> Self {
        Self(Arc::new(decide))
    }

    /// Always the same steps.
    pub fn steps(steps: Vec<Step>) -> Self {
        Self::from_fn(move |_| steps.clone())
    }

    /// The steps for this request.
    pub fn for_request(&self, request: &Recorded) -> Vec<Step> {
        (self.0)(request)
    }

    /// A whole stream whose pieces make `text`, ending with `stop`, usage and `[DONE]`.
    pub fn text(text: &str) -> Self {
        Self::finished(text, "stop")
    }

    /// The same with another finish reason.
    pub fn finished(text: &str, reason: &str) -> Self {
        let steps = vec![Step::Send(sse_answer(&text_events(text, reason)))];
        Self::steps(steps)
    }

    /// A whole stream of these events (the text after `data: `).
    pub fn events<E: AsRef<str>>(events: &[E]) -> Self {
        let events: Vec<String> = events.iter().map(|event| event.as_ref().to_owned()).collect();
        Self::steps(vec![Step::Send(sse_answer(&events))])
    }

    /// A stream of raw bytes under the content type of an event stream, ended properly.
    pub fn stream_bytes(bytes: &[u8]) -> Self {
        let mut answer = stream_head();
        answer.extend(chunk(bytes));
        answer.extend_from_slice(b"0\r\n\r\n");
        Self::steps(vec![Step::Send(answer)])
    }

    /// A JSON answer.
    pub fn json(status: u16, body: &Value) -> Self {
        Self::body(status, "application/json", body.to_string().as_bytes())
    }

    /// An answer with any body.
    pub fn body(status: u16, content_type: &str, body: &[u8]) -> Self {
        Self::steps(vec![Step::Send(http_answer(status, content_type, body))])
    }

    /// An error in the usual shape; the message gets the canary behind it.
    pub fn refusal(status: u16, message: &str) -> Self {
        let message = format!("{message} {CANARY}");
        Self::json(
            status,
            &json!({"error": {"message": message, "type": "BadRequestError", "param": null, "code": status}}),
        )
    }

    /// These bytes, then an orderly close.
    pub fn raw(bytes: &[u8]) -> Self {
        Self::steps(vec![Step::Send(bytes.to_vec()), Step::Close])
    }

    /// Nothing, not even a head.
    pub fn hang_before_head() -> Self {
        Self::steps(vec![Step::Hang])
    }

    /// The head of a stream, then nothing.
    pub fn hang_after_head() -> Self {
        Self::steps(vec![Step::Send(stream_head()), Step::Hang])
    }

    /// Some text, then nothing.
    pub fn hang_mid_body() -> Self {
        Self::steps(vec![Step::Send(partial_stream("Half an answer")), Step::Hang])
    }

    /// Text without an end.
    pub fn dribble() -> Self {
        let piece = chunk(format!("data: {}\n\n", delta(&format!("word {CANARY} "))).as_bytes());
        Self::steps(vec![Step::Send(stream_head()), Step::Dribble(piece, Duration::from_millis(50))])
    }

    /// A stream of this piece as fast as it is taken, until the other side hangs up.
    pub fn endless(piece: &[u8]) -> Self {
        Self::steps(vec![Step::Send(stream_head()), Step::Dribble(piece.to_vec(), Duration::ZERO)])
    }

    /// Closes without a byte.
    pub fn close_at_once() -> Self {
        Self::steps(vec![Step::Close])
    }

    /// Some text, then an orderly close without the end of the body.
    pub fn close_mid_body() -> Self {
        Self::steps(vec![Step::Send(partial_stream("Half an answer")), Step::Close])
    }

    /// Some text, then a reset.
    pub fn reset_mid_body() -> Self {
        Self::steps(vec![Step::Send(partial_stream("Half an answer")), Step::Reset])
    }

    /// A reset without a byte.
    pub fn reset() -> Self {
        Self::steps(vec![Step::Reset])
    }

    /// The same script behind a gate.
    pub fn after(self, gate: &Gate) -> Self {
        let gate = gate.clone();
        Self::from_fn(move |request| {
            let mut steps = vec![Step::WaitFor(gate.clone())];
            steps.extend(self.for_request(request));
            steps
        })
    }

    /// The same script some time later.
    pub fn later(self, pause: Duration) -> Self {
        Self::from_fn(move |request| {
            let mut steps = vec![Step::Wait(pause)];
            steps.extend(self.for_request(request));
            steps
        })
    }

    /// Answers `echo <the last message's text>`.
    pub fn echo() -> Self {
        Self::from_fn(|request| {
            let messages = request.messages();
            let last = messages.last().and_then(|message| message["content"].as_str());
            let text = format!("echo {}", last.unwrap_or_default());
            Self::text(&text).for_request(request)
        })
    }
}

/// The JSON of one chunk with a piece of text.
pub fn delta(text: &str) -> String {
    chunk_json(json!({"content": text}), Value::Null)
}

fn chunk_json(delta: Value, reason: Value) -> String {
    json!({
        "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_790_000_000, "model": "m",
        "choices": [{"index": 0, "delta": delta, "finish_reason": reason}],
    })
    .to_string()
}

/// The events of a whole answer.
pub fn text_events(text: &str, reason: &str) -> Vec<String> {
    let mut events = vec![chunk_json(json!({"role": "assistant", "content": ""}), Value::Null)];
    let characters: Vec<char> = text.chars().collect();
    for piece in characters.chunks(characters.len().div_ceil(3).max(1)) {
        events.push(delta(&piece.iter().collect::<String>()));
    }
    events.push(chunk_json(json!({}), json!(reason)));
    events.push(
        json!({
            "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_790_000_000, "model": "m", "choices": [],
            "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18},
        })
        .to_string(),
    );
    events.push("[DONE]".to_owned());
    events
}

fn partial_stream(text: &str) -> Vec<u8> {
    let mut bytes = stream_head();
    bytes.extend(chunk(format!("data: {}\n\n", delta(&format!("{text} {CANARY}"))).as_bytes()));
    bytes
}

fn sse_answer(events: &[String]) -> Vec<u8> {
    let mut answer = stream_head();
    for event in events {
        answer.extend(chunk(format!("data: {event}\n\n").as_bytes()));
    }
    answer.extend_from_slice(b"0\r\n\r\n");
    answer
}

fn stream_head() -> Vec<u8> {
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec()
}

/// One chunk of a chunked body with one event with this text.
pub fn sse_piece(text: &str) -> Vec<u8> {
    chunk(format!("data: {}\n\n", delta(text)).as_bytes())
}

fn chunk(bytes: &[u8]) -> Vec<u8> {
    let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
    chunk.extend_from_slice(bytes);
    chunk.extend_from_slice(b"\r\n");
    chunk
}

/// A whole answer with a length.
pub fn http_answer(status: u16, content_type: &str, body: &[u8]) -> Vec<u8> {
    let mut answer =
        format!("HTTP/1.1 {status} Scripted\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n\r\n", body.len())
            .into_bytes();
    answer.extend_from_slice(body);
    answer
}
