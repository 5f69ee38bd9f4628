//! Faults of the answer itself, in a framing that is as it should be.
use super::common::CANARY;
use super::connections::{after_sending, sent, turn};
use super::fault::{Fault, Step};
use super::speech::{Dialect, Speech, chunk, with_length};
use serde_json::json;

/// A stream that has begun with `begun` and goes on with `then`.
fn begun(speech: Speech, begun: &str, then: Step) -> Fault {
    after_sending(speech.chunked_head() + &if begun.is_empty() { String::new() } else { chunk(begun) }, then)
}

/// A status with a body.
fn status(status: u16, content_type: &str, body: &str) -> Fault {
    sent(with_length(status, content_type, body.as_bytes(), ""))
}

fn html(code: u16) -> Fault {
    status(code, "text/html", &format!("<!doctype html><title>{CANARY}</title><h1>Something went wrong</h1>"))
}

// Where a stream breaks.

pub fn reset_after_head(speech: Speech) -> Fault {
    begun(speech, "", Step::Reset)
}
pub fn close_after_head(speech: Speech) -> Fault {
    begun(speech, "", Step::Close)
}
pub fn hang_after_head(speech: Speech) -> Fault {
    begun(speech, "", Step::Hang)
}
pub fn reset_between_events(speech: Speech) -> Fault {
    begun(speech, &speech.half(), Step::Reset)
}
pub fn hang_between_events(speech: Speech) -> Fault {
    begun(speech, &speech.half(), Step::Hang)
}
fn half_an_event(speech: Speech) -> String {
    let piece = speech.piece("The whole");
    speech.piece("At first, ") + &piece[..piece.len() / 2]
}
pub fn reset_in_an_event(speech: Speech) -> Fault {
    begun(speech, &half_an_event(speech), Step::Reset)
}
pub fn hang_in_an_event(speech: Speech) -> Fault {
    begun(speech, &half_an_event(speech), Step::Hang)
}
pub fn ends_in_an_event(speech: Speech) -> Fault {
    sent(speech.answer(&half_an_event(speech)))
}
pub fn ends_between_events(speech: Speech) -> Fault {
    sent(speech.answer(&speech.half()))
}
pub fn ends_in_a_character(speech: Speech) -> Fault {
    let piece = speech.piece("half a character é");
    let end = piece.find('é').unwrap() + 1;
    let bytes = &piece.as_bytes()[..end];
    let head = speech.head_with_length(bytes.len());
    sent([head.as_bytes(), bytes].concat())
}
pub fn half_a_character_in_a_whole_answer(speech: Speech) -> Fault {
    let marked = speech.whole(&format!("{} ?", speech.text)).into_bytes();
    let body: Vec<u8> = marked.into_iter().map(|byte| if byte == b'?' { 0xC3 } else { byte }).collect();
    let head = speech.head_with_length(body.len());
    sent([head.as_bytes(), &body].concat())
}
pub fn hang_after_the_end(speech: Speech) -> Fault {
    let whole = speech.chunked_head() + &chunk(&(speech.piece(speech.text) + &speech.end("stop")));
    after_sending(whole, Step::Hang)
}
pub fn lost_after_the_end(speech: Speech) -> Fault {
    let whole = speech.chunked_head() + &chunk(&(speech.piece(speech.text) + &speech.end("stop")));
    after_sending(whole, Step::Close)
}

// What is no answer.

pub fn html_200(_: Speech) -> Fault {
    html(200)
}
pub fn html_404(_: Speech) -> Fault {
    html(404)
}
pub fn html_502(_: Speech) -> Fault {
    html(502)
}
pub fn html_503(_: Speech) -> Fault {
    html(503)
}
pub fn html_504(_: Speech) -> Fault {
    html(504)
}
pub fn redirect(_: Speech) -> Fault {
    sent(with_length(307, "text/plain", b"", "Location: http://127.0.0.1:9/CANARY-7f3a\r\n"))
}
pub fn not_modified(_: Speech) -> Fault {
    sent("HTTP/1.1 304 Not Modified\r\nETag: \"CANARY-7f3a\"\r\n\r\n")
}
pub fn no_content(_: Speech) -> Fault {
    sent("HTTP/1.1 204 No Content\r\n\r\n")
}
pub fn empty_200(speech: Speech) -> Fault {
    sent(speech.answer(""))
}
pub fn garbage_body(speech: Speech) -> Fault {
    sent(speech.answer(&format!("\u{1}\u{2}{CANARY}\u{0}")))
}
pub fn half_a_json(speech: Speech) -> Fault {
    let piece = speech.piece(speech.text);
    let end = piece.find(CANARY).unwrap();
    let broken = format!("{}\n\n{}{}", &piece[..end], speech.end("stop"), speech.done_mark());
    sent(speech.answer(&broken))
}
pub fn done_mark_without_an_end(speech: Speech) -> Fault {
    sent(speech.answer(&(speech.piece("The whole") + "data: [DONE]\n\n")))
}
pub fn done_mark_alone(speech: Speech) -> Fault {
    sent(speech.answer("data: [DONE]\n\n"))
}
pub fn aborted(speech: Speech) -> Fault {
    sent(speech.answer(&speech.ending("The whole", "abort")))
}
pub fn only_loaded(speech: Speech) -> Fault {
    sent(speech.answer(&speech.ending("", "load")))
}
pub fn blank(speech: Speech) -> Fault {
    sent(speech.answer(&speech.whole(" \n ")))
}

// Failures that are reported inside a 200.

pub fn failure_first(speech: Speech) -> Fault {
    sent(speech.answer(&(speech.failure("the runner has crashed") + speech.done_mark())))
}
pub fn failure_in_the_middle(speech: Speech) -> Fault {
    sent(speech.answer(&(speech.half() + &speech.failure("the runner has crashed") + speech.done_mark())))
}
pub fn overflow_in_the_middle(speech: Speech) -> Fault {
    sent(speech.answer(&(speech.half() + &speech.failure("Context size has been exceeded."))))
}
pub fn failure_after_the_end(speech: Speech) -> Fault {
    let ended = speech.piece(speech.text) + &speech.end("stop");
    sent(speech.answer(&(ended + &speech.failure("the runner has crashed"))))
}

// Without end.

fn endless(speech: Speech, message: serde_json::Value) -> Fault {
    begun(speech, &speech.piece("At first, "), Step::Flood(chunk(&speech.step(message).repeat(20)).into_bytes()))
}
pub fn endless_text(speech: Speech) -> Fault {
    endless(speech, json!({"content": CANARY.repeat(100)}))
}
pub fn endless_reasoning(speech: Speech) -> Fault {
    let key = if speech.dialect == Dialect::Ollama { "thinking" } else { "reasoning_content" };
    endless(speech, json!({key: CANARY.repeat(100)}))
}
pub fn endless_empty_steps(speech: Speech) -> Fault {
    endless(speech, json!({"content": ""}))
}
pub fn endless_tool_call(speech: Speech) -> Fault {
    let word = CANARY.repeat(100);
    let arguments = if speech.dialect == Dialect::Ollama { json!({"a": word}) } else { json!(word) };
    let call = json!({"index": 0, "id": word, "function": {"index": 0, "name": word, "arguments": arguments}});
    endless(speech, json!({"tool_calls": [call]}))
}
pub fn endless_pings(speech: Speech) -> Fault {
    let ping = if speech.dialect == Dialect::Ollama { "\n\n\n\n" } else { ": ping\n\n" };
    begun(speech, &speech.piece("At first, "), Step::Flood(chunk(&ping.repeat(200)).into_bytes()))
}
pub fn endless_line(speech: Speech) -> Fault {
    let piece = speech.piece(CANARY);
    let start = piece.split(CANARY).next().unwrap_or_default();
    begun(speech, start, Step::Flood(chunk(&CANARY.repeat(5000)).into_bytes()))
}
pub fn endless_document(speech: Speech) -> Fault {
    let head = format!("{}{{\"choices\":[", speech.head_with_length(1 << 40));
    after_sending(head, Step::Flood(format!("{{\"a\":\"{CANARY}\"}},").repeat(5000).into_bytes()))
}
pub fn dripped_answer(speech: Speech) -> Fault {
    after_sending(speech.head_with_length(1 << 40), Step::Drip(speech.piece(CANARY).into_bytes()))
}
pub fn endless_refusal(speech: Speech) -> Fault {
    let head = "HTTP/1.1 500 X\r\nContent-Type: application/json\r\nContent-Length: 1000000000000\r\n\r\n";
    let refusal = speech.refusal("the runner has crashed");
    after_sending(format!("{head}{}", &refusal[..refusal.len() - 2]), Step::Flood(CANARY.repeat(1000).into_bytes()))
}
/// As a server does that repeats the whole question in its error: what it means is said first.
pub fn refusal_that_repeats_the_question(speech: Speech) -> Fault {
    let body = speech.refusal(&format!("Context size has been exceeded. {}", CANARY.repeat(20_000)));
    status(400, "application/json", &body)
}
pub fn refusal_cut_off(speech: Speech) -> Fault {
    let head = "HTTP/1.1 503 X\r\nContent-Type: application/json\r\nContent-Length: 5000\r\n\r\n";
    after_sending(format!("{head}{}", speech.refusal("all slots are busy")), Step::Close)
}
pub fn refusal_that_hangs(_: Speech) -> Fault {
    after_sending("HTTP/1.1 429 X\r\nContent-Length: 5000\r\n\r\n{\"error\"", Step::Hang)
}
pub fn loading_for_ever(speech: Speech) -> Fault {
    status(503, "application/json", &speech.refusal("Loading model"))
}

// Before the request was read.

/// An answer that comes while most of the request is still to be sent, and nothing of it is read any more.
fn early(bytes: Vec<u8>, then: Step) -> Fault {
    turn(vec![Step::Read(1 << 20), Step::Send(bytes), then])
}
pub fn early_answer_then_hang(speech: Speech) -> Fault {
    early(speech.answer(&speech.whole(speech.text)).into_bytes(), Step::Hang)
}
pub fn early_answer_then_close(speech: Speech) -> Fault {
    early(speech.answer(&speech.whole(speech.text)).into_bytes(), Step::Close)
}
pub fn early_413_then_close(speech: Speech) -> Fault {
    let body = speech.refusal("the body is over the limit");
    early(with_length(413, "application/json", body.as_bytes(), "Connection: close\r\n"), Step::Close)
}
pub fn early_503_then_hang(speech: Speech) -> Fault {
    let body = speech.refusal("all slots are busy");
    early(with_length(503, "application/json", body.as_bytes(), ""), Step::Hang)
}
