//! Faults of the connection and of the framing: what breaks before a word of an answer could be understood.
use super::common::CANARY;
use super::fault::{Fault, Step};
use super::speech::{Speech, chunk};

/// How much of a large body is read before something happens.
const SOME: usize = 1 << 20;

/// These steps, with every turn.
pub fn turn(steps: Vec<Step>) -> Fault {
    Fault { steps, ..Fault::default() }
}

/// Reads the whole request, writes this, and goes on with `then`.
pub fn after_sending(bytes: impl Into<Vec<u8>>, then: Step) -> Fault {
    turn(vec![Step::ReadAll, Step::Send(bytes.into()), then])
}

/// Reads the whole request, writes this, and waits for the other side to close.
pub fn sent(bytes: impl Into<Vec<u8>>) -> Fault {
    turn(vec![Step::ReadAll, Step::Send(bytes.into())])
}

fn at_accept(step: Step) -> Fault {
    Fault { at_accept: Some(step), ..Fault::default() }
}

// Before the head of an answer.

pub fn reset_at_first_byte(_: Speech) -> Fault {
    at_accept(Step::Reset)
}
pub fn close_at_accept(_: Speech) -> Fault {
    at_accept(Step::Close)
}
pub fn hang_at_accept(_: Speech) -> Fault {
    at_accept(Step::Hang)
}
pub fn garbage_at_accept(_: Speech) -> Fault {
    at_accept(Step::Send(format!("SSH-2.0-{CANARY}\r\n").into_bytes()))
}
pub fn reset_after_request_head(_: Speech) -> Fault {
    turn(vec![Step::Reset])
}
pub fn close_after_request_head(_: Speech) -> Fault {
    turn(vec![Step::Close])
}
pub fn hang_after_request_head(_: Speech) -> Fault {
    turn(vec![Step::Hang])
}
pub fn reset_in_request_body(_: Speech) -> Fault {
    turn(vec![Step::Read(SOME), Step::Reset])
}
pub fn close_in_request_body(_: Speech) -> Fault {
    turn(vec![Step::Read(SOME), Step::Close])
}
pub fn hang_in_request_body(_: Speech) -> Fault {
    turn(vec![Step::Read(SOME), Step::Hang])
}
pub fn slow_reading(_: Speech) -> Fault {
    turn(vec![Step::ReadSlowly])
}
pub fn reset_before_head(_: Speech) -> Fault {
    turn(vec![Step::ReadAll, Step::Reset])
}
pub fn close_before_head(_: Speech) -> Fault {
    turn(vec![Step::ReadAll, Step::Close])
}
pub fn hang_before_head(_: Speech) -> Fault {
    turn(vec![Step::ReadAll, Step::Hang])
}

// Inside the head of an answer.

pub fn half_a_status_line(_: Speech) -> Fault {
    after_sending("HTTP/1.1 20", Step::Close)
}
pub fn half_a_head(_: Speech) -> Fault {
    after_sending(format!("HTTP/1.1 200 OK\r\nX-Secret: {CANARY}\r\nContent-Ty"), Step::Close)
}
pub fn reset_in_head(_: Speech) -> Fault {
    after_sending(format!("HTTP/1.1 200 OK\r\nX-Secret: {CANARY}\r\nContent-Ty"), Step::Reset)
}
pub fn hang_in_head(_: Speech) -> Fault {
    after_sending(format!("HTTP/1.1 200 OK\r\nX-Secret: {CANARY}\r\nContent-Ty"), Step::Hang)
}
pub fn dripped_head(_: Speech) -> Fault {
    after_sending("HTTP/1.1 200 OK\r\nX-Secret: ", Step::Drip(CANARY.as_bytes().to_vec()))
}
pub fn one_endless_header(_: Speech) -> Fault {
    after_sending("HTTP/1.1 200 OK\r\nX-Secret: ", Step::Flood(CANARY.repeat(1000).into_bytes()))
}
pub fn endless_headers(_: Speech) -> Fault {
    after_sending("HTTP/1.1 200 OK\r\n", Step::Flood(format!("X-Secret: {CANARY}\r\n").repeat(100).into_bytes()))
}
pub fn endless_status_line(_: Speech) -> Fault {
    after_sending("HTTP/1.1 200 ", Step::Flood(CANARY.repeat(1000).into_bytes()))
}
pub fn interim_flood(_: Speech) -> Fault {
    let interim = format!("HTTP/1.1 103 Early Hints\r\nLink: <{CANARY}>\r\n\r\n");
    turn(vec![Step::ReadAll, Step::Stream(interim.repeat(100).into_bytes())])
}
pub fn some_interims_then_an_answer(speech: Speech) -> Fault {
    let interims = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n".repeat(20);
    sent(interims + &speech.answer(&speech.whole(speech.text)))
}
pub fn interims_then_close(_: Speech) -> Fault {
    after_sending("HTTP/1.1 100 Continue\r\n\r\n".repeat(3), Step::Close)
}
pub fn switching_protocols(_: Speech) -> Fault {
    sent("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: CANARY-7f3a\r\n\r\n")
}
pub fn garbage(_: Speech) -> Fault {
    after_sending(format!("\0\u{1}{CANARY} is not HTTP\r\n\r\n"), Step::Close)
}
pub fn http_2_settings(_: Speech) -> Fault {
    after_sending(*b"\0\0\x12\x04\0\0\0\0\0\0\x03\0\0\0\x64\0\x04\x40\0\0\0\0\x02\0\0\0\0", Step::Close)
}
pub fn http_1_0_until_close(speech: Speech) -> Fault {
    let head = format!("HTTP/1.0 200 OK\r\nContent-Type: {}\r\n\r\n", speech.content_type());
    after_sending(head + &speech.whole(speech.text), Step::Close)
}
pub fn half_until_close(speech: Speech) -> Fault {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Type: {}\r\n\r\n", speech.content_type());
    after_sending(head + &speech.half(), Step::Close)
}

// The framing of the body.

pub fn two_lengths(speech: Speech) -> Fault {
    let body = speech.whole(speech.text);
    let length = body.len();
    sent(format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nContent-Length: 9\r\n\r\n{body}"))
}
pub fn negative_length(speech: Speech) -> Fault {
    sent(format!("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n{}", speech.whole(speech.text)))
}
pub fn length_too_long_then_close(speech: Speech) -> Fault {
    after_sending(speech.head_with_length(5000) + &speech.half(), Step::Close)
}
pub fn length_too_long_then_hang(speech: Speech) -> Fault {
    after_sending(speech.head_with_length(5000) + &speech.half(), Step::Hang)
}
pub fn whole_answer_in_a_length_too_long(speech: Speech) -> Fault {
    after_sending(speech.head_with_length(5000) + &speech.whole(speech.text), Step::Close)
}
pub fn length_too_short(speech: Speech) -> Fault {
    let half = speech.half().len();
    sent(speech.head_with_length(half) + &speech.whole(speech.text))
}
pub fn a_second_answer_behind_the_first(speech: Speech) -> Fault {
    let forged = speech.answer(&speech.whole("A forged answer."));
    sent(speech.answer(&speech.whole(speech.text)) + &forged)
}
pub fn no_chunk_size(speech: Speech) -> Fault {
    sent(format!("{}{CANARY}\r\n{}", speech.chunked_head(), speech.whole(speech.text)))
}
pub fn overflowing_chunk_size(speech: Speech) -> Fault {
    sent(format!("{}{}fffffffffffffffff\r\n{CANARY}", speech.chunked_head(), chunk(&speech.half())))
}
pub fn chunk_longer_than_its_size(speech: Speech) -> Fault {
    sent(format!("{}4\r\n{}\r\n0\r\n\r\n", speech.chunked_head(), speech.whole(speech.text)))
}
pub fn endless_chunk_extension(speech: Speech) -> Fault {
    let begun = speech.chunked_head() + &chunk(&speech.half()) + "5;x=";
    after_sending(begun, Step::Flood(CANARY.repeat(1000).into_bytes()))
}
pub fn no_last_chunk_then_close(speech: Speech) -> Fault {
    after_sending(speech.chunked_head() + &chunk(&speech.half()), Step::Close)
}
pub fn endless_trailers(speech: Speech) -> Fault {
    let whole = format!("{}{}0\r\n", speech.chunked_head(), chunk(&speech.whole(speech.text)));
    after_sending(whole, Step::Flood(format!("X-Secret: {CANARY}\r\n").repeat(100).into_bytes()))
}
pub fn compressed_though_not_asked_for(_: Speech) -> Fault {
    let head = "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 12\r\n\r\n";
    sent([head.as_bytes(), b"\x1f\x8b\x08\0\0\0\0\0\0\x03\0\0"].concat())
}
