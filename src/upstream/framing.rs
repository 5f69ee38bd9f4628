//! Cuts an answer into its JSON documents, however it is framed: server-sent events, one object a line, or one plain object.
//!
//! What it is framed as is judged by its first bytes: content types lie (LM Studio, mlx-lm), and a server that was asked
//! for a stream may still answer with one object.

use bytes::{Buf, Bytes, BytesMut};

use crate::buffer::append;

/// The longest name of a field that an event stream may begin with: there are four, none of them long.
const LONGEST_FIELD: usize = 32;

/// One thing that an answer held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// A JSON document, as raw bytes: the data of an event, or one top-level value.
    Document(Bytes),
    /// What an event that is called an error says, in whatever form (LM Studio, llama.cpp before 2025).
    Failure(Bytes),
    /// The `[DONE]` mark. It proves nothing: vLLM sends it after an error, too.
    Done,
}

/// The answer is not framed in any way that is known, or one frame is over the cap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FramingError {
    /// The first bytes begin neither an event stream nor a JSON object (an HTML page, plain text).
    NotAnAnswer,
    /// A single event or document is longer than the cap.
    FrameTooLong,
    /// The answer ended inside a document.
    CutOff,
}

/// An incremental splitter: bytes in, in pieces of any size; frames out.
pub struct Splitter {
    form: Form,
    buffer: BytesMut,
    /// How far `buffer` was looked at already, so that no byte is scanned twice.
    scanned: usize,
    cap: usize,
}

impl std::fmt::Debug for Splitter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Splitter({} bytes waiting)", self.buffer.len())
    }
}

enum Form {
    /// Nothing was seen so far: a byte order mark may come.
    Beginning,
    /// Nothing but white space or a byte order mark was seen so far.
    Unknown,
    Events(EventState),
    Documents(DocumentState),
}

#[derive(Default)]
struct EventState {
    /// The data lines of the event that is being read, joined with line feeds.
    data: Option<BytesMut>,
    /// Whether the event that is being read is called an error.
    is_error: bool,
    /// A carriage return ended the last line: a line feed right after it belongs to it.
    after_carriage_return: bool,
}

#[derive(Default)]
struct DocumentState {
    depth: usize,
    in_string: bool,
    escaped: bool,
}

impl Splitter {
    /// A splitter that refuses a single frame of more than `cap` bytes.
    pub fn new(cap: usize) -> Self {
        Splitter { form: Form::Beginning, buffer: BytesMut::new(), scanned: 0, cap }
    }

    /// Takes the next piece of the answer.
    pub fn push(&mut self, piece: &[u8]) {
        append(&mut self.buffer, piece);
    }

    /// Whether the answer is plain JSON and no event stream.
    pub fn is_plain(&self) -> bool {
        matches!(self.form, Form::Documents(_))
    }

    /// The next whole frame, if one is there.
    ///
    /// # Errors
    /// The answer cannot be split; nothing of it can be used.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, FramingError> {
        if matches!(self.form, Form::Beginning | Form::Unknown) && !self.recognise()? {
            return Ok(None);
        }
        let frame = match &mut self.form {
            Form::Beginning | Form::Unknown => None,
            Form::Events(state) => state.next_frame(&mut self.buffer, &mut self.scanned, self.cap)?,
            Form::Documents(state) => state.next_frame(&mut self.buffer, &mut self.scanned, self.cap)?,
        };
        if frame.is_none() && self.buffer.len() > self.cap {
            return Err(FramingError::FrameTooLong);
        }
        Ok(frame)
    }

    /// Says that the answer has ended: an event may lack its final blank line, and is a frame yet to be taken then.
    ///
    /// # Errors
    /// The answer ended inside a document.
    pub fn finish(&mut self) -> Result<(), FramingError> {
        match &self.form {
            Form::Events(_) => self.buffer.extend_from_slice(b"\n\n"),
            _ if self.buffer.is_empty() => {}
            Form::Documents(_) => return Err(FramingError::CutOff),
            Form::Beginning | Form::Unknown => return Err(FramingError::NotAnAnswer),
        }
        Ok(())
    }

    /// Decides the form from the first byte that is neither white space nor part of a byte order mark.
    fn recognise(&mut self) -> Result<bool, FramingError> {
        const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
        if matches!(self.form, Form::Beginning) {
            if self.buffer.len() < BYTE_ORDER_MARK.len() && BYTE_ORDER_MARK.starts_with(&self.buffer) {
                return Ok(false);
            }
            if self.buffer.starts_with(BYTE_ORDER_MARK) {
                self.buffer.advance(BYTE_ORDER_MARK.len());
            }
            self.form = Form::Unknown;
        }
        let blank = self.buffer.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        self.buffer.advance(blank);
        self.form = match self.buffer.first() {
            None => return Ok(false),
            Some(b'{') => Form::Documents(DocumentState::default()),
            // A comment, or a field: a name and a colon, or a name alone on its line.
            Some(_) => {
                let name = self.buffer.iter().take_while(|byte| byte.is_ascii_alphabetic() || **byte == b'_').count();
                match self.buffer.get(name) {
                    _ if name > LONGEST_FIELD => return Err(FramingError::NotAnAnswer),
                    Some(b':') => Form::Events(EventState::default()),
                    Some(b'\n' | b'\r') if name > 0 => Form::Events(EventState::default()),
                    None => return Ok(false),
                    _ => return Err(FramingError::NotAnAnswer),
                }
            }
        };
        Ok(true)
    }
}

impl EventState {
    fn next_frame(
        &mut self,
        buffer: &mut BytesMut,
        scanned: &mut usize,
        cap: usize,
    ) -> Result<Option<Frame>, FramingError> {
        loop {
            if self.after_carriage_return && !buffer.is_empty() {
                self.after_carriage_return = false;
                if buffer[0] == b'\n' {
                    buffer.advance(1);
                }
            }
            let Some(end) = memchr::memchr2(b'\n', b'\r', &buffer[*scanned..]).map(|end| *scanned + end) else {
                *scanned = buffer.len();
                return Ok(None);
            };
            *scanned = 0;
            // As if it had come byte by byte: how an answer is cut on its way decides nothing.
            if end > cap {
                return Err(FramingError::FrameTooLong);
            }
            let line = buffer.split_to(end);
            self.after_carriage_return = buffer[0] == b'\r';
            buffer.advance(1);
            // A bare object is an event of its own.
            let ends_an_event = line.is_empty() || (line.starts_with(b"{") && self.data.is_some());
            let complete = if ends_an_event { self.dispatch() } else { None };
            if !line.is_empty() {
                self.line(line, cap)?;
            }
            if complete.is_some() {
                return Ok(complete);
            }
        }
    }

    /// One line of an event. The fields `id` and `retry` and any that nobody knows carry nothing that Weir needs.
    fn line(&mut self, mut line: BytesMut, cap: usize) -> Result<(), FramingError> {
        if !line.starts_with(b"{") {
            let colon = memchr::memchr(b':', &line);
            let name = &line[..colon.unwrap_or(line.len())];
            let begin = colon.map_or(line.len(), |colon| colon + 1);
            let begin = if line.get(begin) == Some(&b' ') { begin + 1 } else { begin };
            match name {
                b"data" => {}
                b"event" => {
                    self.is_error = &line[begin..] == b"error";
                    return Ok(());
                }
                // The form that llama.cpp used before it wrote errors as data.
                b"error" => self.is_error = true,
                _ => return Ok(()),
            }
            line.advance(begin);
        }
        match &mut self.data {
            // Mostly there is only one such line: it is kept where it stands.
            None => self.data = Some(line),
            Some(data) => {
                append(data, b"\n");
                append(data, &line);
            }
        }
        if self.data.as_ref().is_some_and(|data| data.len() > cap) {
            return Err(FramingError::FrameTooLong);
        }
        Ok(())
    }

    /// The event that a blank line (or the end) completes. What is no object carries nothing (keep-alives such as `data: :`).
    fn dispatch(&mut self) -> Option<Frame> {
        let is_error = std::mem::take(&mut self.is_error);
        let data = self.data.take()?.freeze();
        let trimmed = data.trim_ascii();
        if is_error {
            Some(Frame::Failure(data.slice_ref(trimmed)))
        } else if trimmed == b"[DONE]" {
            Some(Frame::Done)
        } else if trimmed.first() == Some(&b'{') {
            Some(Frame::Document(data.slice_ref(trimmed)))
        } else {
            None
        }
    }
}

impl DocumentState {
    fn next_frame(
        &mut self,
        buffer: &mut BytesMut,
        scanned: &mut usize,
        cap: usize,
    ) -> Result<Option<Frame>, FramingError> {
        if self.depth == 0 {
            let blank = buffer.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
            buffer.advance(blank);
            match buffer.first() {
                None => return Ok(None),
                Some(b'{') => {}
                // mlx-lm and others end a plain answer with rubbish no more than anybody else does: nothing to trust here.
                Some(_) => return Err(FramingError::NotAnAnswer),
            }
        }
        while let Some(&byte) = buffer.get(*scanned) {
            if self.in_string && !self.escaped {
                let Some(plain) = memchr::memchr2(b'"', b'\\', &buffer[*scanned..]) else {
                    *scanned = buffer.len();
                    return Ok(None);
                };
                *scanned += plain + 1;
                match buffer[*scanned - 1] {
                    b'"' => self.in_string = false,
                    _ => self.escaped = true,
                }
                continue;
            }
            *scanned += 1;
            match byte {
                _ if self.escaped => self.escaped = false,
                b'"' => self.in_string = true,
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == 0 {
                        if *scanned > cap {
                            return Err(FramingError::FrameTooLong);
                        }
                        let document = buffer.split_to(*scanned).freeze();
                        *scanned = 0;
                        return Ok(Some(Frame::Document(document)));
                    }
                }
                _ => {}
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(answer: &[u8], piece: usize) -> Result<Vec<Frame>, FramingError> {
        let mut splitter = Splitter::new(1000);
        let mut frames = Vec::new();
        for piece in answer.chunks(piece) {
            splitter.push(piece);
            while let Some(frame) = splitter.next_frame()? {
                frames.push(frame);
            }
        }
        splitter.finish()?;
        while let Some(frame) = splitter.next_frame()? {
            frames.push(frame);
        }
        Ok(frames)
    }

    fn document(text: &str) -> Frame {
        Frame::Document(Bytes::copy_from_slice(text.as_bytes()))
    }

    #[test]
    fn every_legal_form_of_an_event_stream_gives_the_same_frames_however_it_is_cut() {
        let answers = [
            "data: {\"a\":\"é\"}\n\ndata: {\"b\":2}\n\ndata: [DONE]\n\n",
            "data:{\"a\":\"é\"}\r\n\r\ndata:{\"b\":2}\r\n\r\ndata:[DONE]\r\n\r\n",
            "data: {\"a\":\"é\"}\r\rdata: {\"b\":2}\r\rdata: [DONE]",
            "\u{feff}: ping\n\nevent: x\nid: 7\nretry: 3\ndata: {\"a\":\"é\"}\n\n:\n\n:\n\ndata: {\"b\":2}\n\ndata: [DONE]\n",
            "data\n\ndata:\n\ndata: : keepalive\n\ndata: {\"a\":\"é\"}\n\n{\"b\":2}\n\ndata: [DONE]",
        ];
        for answer in answers {
            for piece in 1..answer.len() {
                let frames = split(answer.as_bytes(), piece).unwrap();
                assert_eq!(
                    frames,
                    [document("{\"a\":\"é\"}"), document("{\"b\":2}"), Frame::Done],
                    "{answer:?} by {piece}"
                );
            }
        }
    }

    #[test]
    fn a_stream_may_begin_with_a_field_that_nobody_knows() {
        assert_eq!(split(b"foo: bar\n\ndata: {\"a\":1}\n\n", 1).unwrap(), [document("{\"a\":1}")]);
    }

    #[test]
    fn an_event_that_is_called_an_error_is_one_whatever_it_holds() {
        let failure = |text: &'static str| Frame::Failure(Bytes::from_static(text.as_bytes()));
        for piece in 1..20 {
            assert_eq!(split(b"event: error\ndata: no room\n\n", piece).unwrap(), [failure("no room")]);
            assert_eq!(split(b"error: {\"code\":500}\n\n", piece).unwrap(), [failure("{\"code\":500}")]);
            let answer = b"data: {\"a\":1}\n\nevent: error\ndata: {\"b\":2}\n\ndata: {\"c\":3}\n\n";
            let frames = [document("{\"a\":1}"), failure("{\"b\":2}"), document("{\"c\":3}")];
            assert_eq!(split(answer, piece).unwrap(), frames);
        }
    }

    #[test]
    fn bare_objects_are_events_of_their_own() {
        let answer = b"data: {\"a\":1}\n{\"b\":2}\n{\"c\":3}\n\n";
        assert_eq!(split(answer, 5).unwrap(), [document("{\"a\":1}"), document("{\"b\":2}"), document("{\"c\":3}")]);
    }

    #[test]
    fn the_data_lines_of_one_event_belong_together() {
        assert_eq!(split(b"data: {\"a\":\ndata: 1}\n\n", 3).unwrap(), [document("{\"a\":\n1}")]);
    }

    #[test]
    fn objects_are_split_by_their_braces_and_not_by_lines() {
        let answer = "{\"a\":\"}\\\"{\"}\n{\n  \"b\": [1, {}]\n}{\"c\":3}\n";
        for piece in 1..answer.len() {
            assert_eq!(
                split(answer.as_bytes(), piece).unwrap(),
                [document("{\"a\":\"}\\\"{\"}"), document("{\n  \"b\": [1, {}]\n}"), document("{\"c\":3}")]
            );
        }
    }

    #[test]
    fn what_is_no_answer_is_said_to_be_none() {
        for answer in ["<html>", "proxy error: x", "[1]", "\"x\"", "datum", "Internal Server Error"] {
            assert_eq!(split(answer.as_bytes(), 2), Err(FramingError::NotAnAnswer), "{answer}");
        }
        assert_eq!(split(b" \n ", 1).unwrap(), []);
    }

    #[test]
    fn an_object_that_is_cut_off_is_an_error_and_an_event_stream_without_its_last_blank_line_is_not() {
        assert_eq!(split(b"{\"a\":1", 2), Err(FramingError::CutOff));
        assert_eq!(split(b"data: {\"a\":1}", 2).unwrap(), [document("{\"a\":1}")]);
    }

    #[test]
    fn a_frame_over_the_cap_is_refused_before_it_is_whole() {
        let long = format!("{{\"a\":\"{}", "x".repeat(2000));
        assert_eq!(split(long.as_bytes(), 100), Err(FramingError::FrameTooLong));
        assert_eq!(split(format!("data: {long}").as_bytes(), 100), Err(FramingError::FrameTooLong));
        let lines = format!("data: {}\n", "x".repeat(90)).repeat(20);
        assert_eq!(split(lines.as_bytes(), 100), Err(FramingError::FrameTooLong));
    }
}
