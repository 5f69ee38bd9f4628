//! Targets `sse` and `ndjson`: the splitter of answers, in both of its forms, and what reads its frames.

use serde_json::Value;
use weir::json::Index;
use weir::upstream::dialect::Dialect;
use weir::upstream::document::Document;
use weir::upstream::framing::{Frame, FramingError, Splitter};
use weir::upstream::pattern::Pattern;

use crate::allocations;
use crate::chance::Chance;

/// A cap that no input of these targets reaches.
const NO_CAP: usize = 1 << 24;

/// What an answer was split into, up to its end or to what is wrong with it.
#[derive(Debug, PartialEq)]
struct Outcome {
    frames: Vec<Frame>,
    error: Option<FramingError>,
    is_plain: bool,
}

/// The input is an answer that may be an event stream.
pub fn sse(input: &[u8]) {
    let outcome = check(input);
    if outcome.is_plain {
        return;
    }
    let mut written = Vec::new();
    for frame in &outcome.frames {
        match frame {
            Frame::Document(document) => write_event(document, &mut written),
            Frame::Failure(words) => {
                written.extend_from_slice(b"event: error\n");
                write_event(words, &mut written);
            }
            Frame::Done => write_event(b"[DONE]", &mut written),
        }
    }
    let again = split(&written, std::iter::empty(), NO_CAP);
    assert_eq!(again.frames, outcome.frames, "the frames as a stream of their own give other frames");
    assert_eq!(again.error, None);
}

fn write_event(data: &[u8], stream: &mut Vec<u8>) {
    for line in data.split(|&byte| byte == b'\n') {
        stream.extend_from_slice(b"data: ");
        stream.extend_from_slice(line);
        stream.push(b'\n');
    }
    stream.push(b'\n');
}

/// The input is an answer that may be plain objects, one after the other.
pub fn ndjson(input: &[u8]) {
    let outcome = check(input);
    // Where all of the answer is JSON objects, they are its frames.
    let values: Result<Vec<&serde_json::value::RawValue>, _> =
        serde_json::Deserializer::from_slice(input).into_iter().collect();
    let Ok(values) = values else { return };
    if std::str::from_utf8(input).is_err() || !values.iter().all(|value| value.get().starts_with('{')) {
        return;
    }
    assert_eq!(outcome.error, None);
    assert_eq!(outcome.frames.len(), values.len());
    for (frame, value) in outcome.frames.iter().zip(values) {
        let Frame::Document(document) = frame else { panic!("an object became {frame:?}") };
        assert_eq!(document, value.get().as_bytes());
    }
}

/// However the answer is cut on its way, it is split the same, within the cap.
fn check(input: &[u8]) -> Outcome {
    let mut chance = Chance::of(input);
    let cap = [4, 16, 64, 256, NO_CAP][chance.below(5)];
    let whole = split(input, std::iter::empty(), cap);
    for frame in &whole.frames {
        if let Frame::Document(data) | Frame::Failure(data) = frame {
            assert!(data.len() <= cap, "a frame of {} bytes passed a cap of {cap}", data.len());
        }
    }
    assert_eq!(split(input, 1..input.len(), cap), whole, "cut after every byte");
    let longest = 1 + chance.below(40);
    let mut at = 0;
    let cuts: Vec<usize> = std::iter::from_fn(|| {
        at += 1 + chance.below(longest);
        (at < input.len()).then_some(at)
    })
    .collect();
    assert_eq!(split(input, cuts.into_iter(), cap), whole, "cut in pieces of up to {longest} bytes");
    if chance.below(8) == 0 {
        check_memory(input, cap);
    }
    let outcome = split(input, std::iter::empty(), NO_CAP);
    let mut pattern = Pattern::default();
    outcome.frames.iter().for_each(|frame| read(frame, &mut pattern));
    outcome
}

/// Takes out whatever is there before the next piece comes, as an exchange does.
fn split(input: &[u8], cuts: impl Iterator<Item = usize>, cap: usize) -> Outcome {
    let mut splitter = Splitter::new(cap);
    let mut frames = Vec::new();
    let take = || -> Result<(), FramingError> {
        let mut start = 0;
        for end in cuts.map(Some).chain([Some(input.len()), None]) {
            match end {
                Some(end) => splitter.push(&input[std::mem::replace(&mut start, end)..end]),
                None => splitter.finish()?,
            }
            while let Some(frame) = splitter.next_frame()? {
                frames.push(frame);
            }
        }
        Ok(())
    };
    let error = take().err();
    Outcome { frames, error, is_plain: splitter.is_plain() }
}

/// What waits for the rest of a frame stays within a small multiple of the cap, for an answer that never ends.
fn check_memory(input: &[u8], cap: usize) {
    if cap > 1000 || input.is_empty() {
        return;
    }
    let before = allocations::held();
    let mut splitter = Splitter::new(cap);
    for piece in std::iter::repeat_n(input, 20).flat_map(|input| input.chunks(128)) {
        splitter.push(piece);
        loop {
            match splitter.next_frame() {
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(_) => return,
            }
        }
        let held = allocations::held() - before;
        assert!(held <= 4 * cap + 1024, "{held} bytes are held under a cap of {cap}");
    }
}

/// What an exchange does with a frame. `pattern` knows the frames before it.
fn read(frame: &Frame, pattern: &mut Pattern) {
    let Frame::Document(document) = frame else { return };
    let mut index = Index::default();
    let read = Document::read(document, &mut index);
    if let Ok(strict @ Value::Object(_)) = serde_json::from_slice(document) {
        let root = read.as_ref().expect("strict JSON is a document").root();
        assert_eq!(serde_json::from_str::<Value>(root.as_json()).ok(), Some(strict), "strict JSON was read leniently");
    }
    if let Some(text) = pattern.text_of(document) {
        let read = read.as_ref().expect("a document like one before it is one");
        let piece = Dialect::OpenAi.decode(read.root(), false).expect("it reports no failure");
        assert_eq!(piece.text, text, "the pattern of the stream gives another text");
        assert!(piece.end.is_none() && piece.usage.is_none() && !piece.reasoning && piece.tool_calls.is_empty());
    }
    if let Some(piece) = read.as_ref().and_then(Document::borrowed).and_then(|root| Dialect::OpenAi.decode(root, false))
    {
        pattern.learn(document, &piece);
    }
    if let Some(read) = read {
        for dialect in [Dialect::OpenAi, Dialect::Ollama] {
            for plain in [true, false] {
                dialect.decode(read.root(), plain);
            }
        }
    }
}
