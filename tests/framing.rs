//! The splitter of answers: however a network cuts an answer, it comes to the same frames, and none is over the cap.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use bytes::Bytes;
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Value, json};
use weir::upstream::framing::{Frame, FramingError, Splitter};

/// A cap that nothing here reaches.
const NO_CAP: usize = 1 << 24;

/// The frames, and what is wrong with the answer where they end, if anything is.
type Outcome = (Vec<Frame>, Option<FramingError>);

/// Cuts an answer at these places and splits it; whatever is there is taken out before the next piece comes.
fn split(answer: &[u8], cuts: &[usize], cap: usize) -> Outcome {
    let mut splitter = Splitter::new(cap);
    let mut frames = Vec::new();
    let mut take_all = || {
        let mut start = 0;
        for end in cuts.iter().copied().map(Some).chain([Some(answer.len()), None]) {
            match end {
                Some(end) => splitter.push(&answer[std::mem::replace(&mut start, end)..end]),
                None => splitter.finish()?,
            }
            while let Some(frame) = splitter.next_frame()? {
                frames.push(frame);
            }
        }
        Ok(())
    };
    let error = take_all().err();
    (frames, error)
}

fn places(cuts: &[Index], length: usize) -> Vec<usize> {
    let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(length + 1)).collect();
    places.sort_unstable();
    places
}

/// Pieces of which answers are made, and of which broken ones are.
fn any_answer() -> impl Strategy<Value = Vec<u8>> {
    let tokens: Vec<&[u8]> = vec![
        b"data: ",
        b"data:",
        b"data",
        b"event: error",
        b"event: x",
        b"error: ",
        b"id: 7",
        b": ping",
        b":",
        b"foo: bar",
        b"\n",
        b"\n",
        b"\n\n",
        b"\r\n",
        b"\r\n\r\n",
        b"\r",
        b"[DONE]",
        b"{\"a\":1}",
        b"{\"a\":\"}\\\"{\"}",
        b"{",
        b"}",
        b"[",
        b"]",
        b"\"",
        b"\\",
        b" ",
        b"\t",
        b"\xef\xbb\xbf",
        b"\xef",
        b"\xbb\xbf",
        b"\xf0\x9f",
        b"<html>",
        b"null",
        b"a_name_that_is_longer_than_that_of_any_field",
    ];
    let token = prop_oneof![
        8 => prop::sample::select(tokens).prop_map(<[u8]>::to_vec),
        1 => prop::collection::vec(any::<u8>(), 0..6),
        1 => (1..40usize).prop_map(|length| vec![b'x'; length]),
    ];
    prop::collection::vec(token, 0..25).prop_map(|tokens| tokens.concat())
}

fn cuts() -> impl Strategy<Value = Vec<Index>> {
    prop::collection::vec(any::<Index>(), 0..12)
}

fn object() -> impl Strategy<Value = Value> {
    let text = prop_oneof![any::<String>(), "[\\[\\]{}\":,\\\\\r\n é]{0,12}"].prop_map(Value::from);
    (text.clone(), prop::collection::vec(text, 0..3)).prop_map(|(a, b)| json!({"a": a, "b": {"c": b}}))
}

/// One thing that an event stream may hold.
#[derive(Debug, Clone)]
enum Event {
    Object(Value),
    /// An object on a line of its own, without `data:`.
    Bare(Value),
    Failure(String),
    Done,
    /// What means nothing: comments, keep-alives, other fields.
    Nothing(&'static str),
}

fn event() -> impl Strategy<Value = Event> {
    let nothing = [": ping", ":", "id: 7", "retry: 3", "data: : keep-alive", "data:", "data", "event: chunk", "x: y"];
    prop_oneof![
        4 => object().prop_map(Event::Object),
        2 => object().prop_map(Event::Bare),
        1 => "[a-z{}\" ]{0,10}[a-z}]".prop_map(Event::Failure),
        1 => Just(Event::Done),
        2 => prop::sample::select(nothing.to_vec()).prop_map(Event::Nothing),
    ]
}

/// The event as it is written, without its final blank line, and the frame that it makes.
fn written(event: &Event, tight: bool) -> (Vec<String>, Option<Frame>) {
    let data = if tight { "data:" } else { "data: " };
    let document = |text: &str| Some(Frame::Document(Bytes::copy_from_slice(text.as_bytes())));
    match event {
        // Pretty printing spreads an object over the data lines of one event.
        Event::Object(value) => {
            let text = if tight { value.to_string() } else { serde_json::to_string_pretty(value).unwrap() };
            (text.lines().map(|line| format!("{data}{line}")).collect(), document(&text))
        }
        Event::Bare(value) => (vec![value.to_string()], document(&value.to_string())),
        Event::Failure(words) => {
            let lines = match tight {
                true => vec![format!("error: {words}")],
                false => vec!["event: error".to_owned(), format!("data: {words}")],
            };
            (lines, Some(Frame::Failure(Bytes::copy_from_slice(words.trim_ascii().as_bytes()))))
        }
        Event::Done => (vec![format!("{data}[DONE]")], Some(Frame::Done)),
        Event::Nothing(line) => (vec![(*line).to_owned()], None),
    }
}

#[test]
fn what_comes_at_once_is_judged_as_what_comes_byte_by_byte() {
    let long = "x".repeat(40);
    for (answer, cap) in [
        (" \u{feff}{}".to_owned(), NO_CAP),
        ("\u{feff}\u{feff}{}".to_owned(), NO_CAP),
        ("\u{feff} data: {}\n\n".to_owned(), NO_CAP),
        (format!("{long}: y\n\ndata: {{}}\n\n"), NO_CAP),
        (format!("{long}\n\ndata: {{}}\n\n"), NO_CAP),
        (format!("{{\"a\":\"{long}\"}}"), 40),
        (format!("data: {{\"a\":\"{long}\"}}\n\n"), 40),
        (format!(": {long}\n\ndata: {{}}\n\n"), 40),
        (format!("data: {{}}\n\n{{\"a\":\"{long}\"}}\n"), 40),
    ] {
        let after_every_byte: Vec<usize> = (1..answer.len()).collect();
        let answer = answer.as_bytes();
        assert_eq!(split(answer, &after_every_byte, cap), split(answer, &[], cap), "{answer:?}");
    }
}

#[test]
fn the_last_event_needs_no_line_end() {
    let object = |text: &'static str| Frame::Document(Bytes::from_static(text.as_bytes()));
    let answer = b"data: {\"a\":1}\n{\"b\":2}\n{\"c\":3}";
    assert_eq!(split(answer, &[], NO_CAP), (vec![object("{\"a\":1}"), object("{\"b\":2}"), object("{\"c\":3}")], None));
}

#[test]
fn a_bare_object_belongs_to_the_event_that_its_line_before_calls_an_error() {
    let words = Frame::Failure(Bytes::from_static(b"{\"b\":2}"));
    assert_eq!(split(b"event: error\n{\"b\":2}\n\n", &[], NO_CAP), (vec![words], None));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_come_to_the_same_frames_however_they_are_cut(
        answer in any_answer(), cuts in cuts(), cap in prop::sample::select(vec![5, 12, 50, NO_CAP])
    ) {
        let whole = split(&answer, &[], cap);
        prop_assert_eq!(&split(&answer, &places(&cuts, answer.len()), cap), &whole);
        let after_every_byte: Vec<usize> = (1..answer.len()).collect();
        prop_assert_eq!(&split(&answer, &after_every_byte, cap), &whole);
        for frame in &whole.0 {
            if let Frame::Document(data) | Frame::Failure(data) = frame {
                prop_assert!(data.len() <= cap, "{} bytes", data.len());
            }
        }
    }

    #[test]
    fn an_event_stream_comes_to_its_events_however_it_is_written(
        events in prop::collection::vec((event(), any::<bool>()), 1..8),
        end in prop::sample::select(vec!["\n", "\r\n", "\r"]),
        blank_at_the_end: bool, mark: bool, cuts in cuts(),
    ) {
        let mut answer = String::from(if mark { "\u{feff}: hi" } else { ": hi" });
        let mut expected = Vec::new();
        let mut bare_before = false;
        for (event, tight) in &events {
            let (lines, frame) = written(event, *tight);
            expected.extend(frame);
            // Between objects on lines of their own no blank line is needed.
            let is_bare = matches!(event, Event::Bare(_));
            answer.push_str(if is_bare && bare_before { end } else { "" });
            if !(is_bare && bare_before) {
                answer.push_str(&end.repeat(2));
            }
            answer.push_str(&lines.join(end));
            bare_before = is_bare;
        }
        if blank_at_the_end {
            answer.push_str(&end.repeat(2));
        }
        let answer = answer.as_bytes();
        prop_assert_eq!(split(answer, &places(&cuts, answer.len()), NO_CAP), (expected, None), "{:?}", answer);
    }

    #[test]
    fn objects_come_to_themselves_whatever_white_space_is_between_them(
        objects in prop::collection::vec((object(), any::<bool>(), "[ \r\n\t]{0,3}"), 1..6), cuts in cuts()
    ) {
        let mut answer = String::new();
        let mut expected = Vec::new();
        for (object, pretty, space) in &objects {
            let text = if *pretty { serde_json::to_string_pretty(object).unwrap() } else { object.to_string() };
            answer.push_str(&text);
            answer.push_str(space);
            expected.push(Frame::Document(Bytes::from(text)));
        }
        let answer = answer.as_bytes();
        prop_assert_eq!(split(answer, &places(&cuts, answer.len()), NO_CAP), (expected, None));
    }

    #[test]
    fn a_frame_over_the_cap_ends_the_answer_and_one_within_it_does_not(
        lengths in prop::collection::vec(8..60usize, 1..6), cap in 20..60usize, events: bool, cuts in cuts()
    ) {
        let mut answer = String::new();
        let mut expected = (Vec::new(), None);
        for length in lengths {
            let object = format!("{{\"a\":\"{}\"}}", "x".repeat(length - 8));
            let line = if events { format!("data: {object}") } else { object.clone() };
            answer.push_str(&line);
            answer.push_str("\n\n");
            if expected.1.is_some() {
                continue;
            }
            // Of an event it is the line that counts: nobody knows what it is before its end.
            if line.len() <= cap {
                expected.0.push(Frame::Document(Bytes::from(object)));
            } else {
                expected.1 = Some(FramingError::FrameTooLong);
            }
        }
        let answer = answer.as_bytes();
        prop_assert_eq!(split(answer, &places(&cuts, answer.len()), cap), expected);
    }
}
