//! The outgoing request body: a chain of slices of the phone's body and small literals, never one big copy.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};

use crate::contract::Conversation;

/// Slices shorter than this are copied beside their neighbours: a frame of their own costs more than the copy.
const WORTH_A_SLICE: usize = 1024;

/// Bytes that stand around the text of a message, about.
const AROUND_A_MESSAGE: usize = 40;

/// A request body under construction, and then on its way. Its length is known, so it is never sent chunked
/// (mlx-lm and llamafile refuse that).
#[derive(Clone, Default)]
pub struct SlicedBody {
    slices: VecDeque<Bytes>,
    literal: BytesMut,
    length: u64,
}

impl std::fmt::Debug for SlicedBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SlicedBody({} bytes)", self.length)
    }
}

impl SlicedBody {
    /// A body in which a conversation is to be written, without its pictures.
    pub fn with_room_for(conversation: &Conversation) -> Self {
        let around = AROUND_A_MESSAGE * (conversation.messages.len() + 10);
        let text = conversation.text_bytes().min(WORTH_A_SLICE * conversation.messages.len());
        SlicedBody { literal: BytesMut::with_capacity(around + text), ..SlicedBody::default() }
    }

    /// Appends text of our own.
    pub fn literal(&mut self, text: &str) {
        self.literal.extend_from_slice(text.as_bytes());
        self.length += text.len() as u64;
    }

    /// Appends a value as JSON: for the few small values that Weir writes itself.
    pub fn json(&mut self, value: &impl serde::Serialize) {
        self.literal(&serde_json::to_string(value).unwrap_or_default());
    }

    /// Appends a slice without copying it, if it is long enough to be worth that.
    pub fn slice(&mut self, slice: &Bytes) {
        self.length += slice.len() as u64;
        if slice.len() < WORTH_A_SLICE {
            self.literal.extend_from_slice(slice);
        } else {
            self.end_literal();
            self.slices.push_back(slice.clone());
        }
    }

    /// Makes the body ready to be sent, and to be cloned for another sending at the cost of its slice handles.
    pub fn finish(mut self) -> Self {
        self.end_literal();
        self
    }

    fn end_literal(&mut self) {
        if !self.literal.is_empty() {
            self.slices.push_back(self.literal.split().freeze());
        }
    }
}

impl Body for SlicedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = self.slices.pop_front();
        if let Some(slice) = &next {
            self.length -= slice.len() as u64;
        }
        Poll::Ready(next.map(|slice| Ok(Frame::data(slice))))
    }

    fn is_end_stream(&self) -> bool {
        self.slices.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.length)
    }
}
