//! The harness of the black-box tests: a scripted model server, the real binary in front of it, a raw client.
//!
//! Everything secret that the harness makes (tokens, messages, pictures, replies, keys, error bodies) carries
//! [`CANARY`]; when a [`Weir`] is dropped, its output must not contain it in any form.
#![allow(dead_code, unused_imports, unreachable_pub)]
#![allow(clippy::unwrap_used, clippy::expect_used)]
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod client;
mod errors;
mod json;
mod ollama;
mod pictures;
mod port;
mod recorded;
mod script;
mod start;
mod upstream;
mod weir;

pub use client::{Connection, Request, Response};
pub use json::*;
pub use ollama::{NDJSON, ollama_answer, ollama_fixture, ollama_json, ollama_stream};
pub use pictures::*;
pub use port::ReservedPort;
pub use recorded::Recorded;
pub use script::{Gate, Script, Step, http_answer, sse_piece, text_events};
pub use start::{Builder, Refusal, demo_command, prepared, run_to_end, weir_command};
pub use upstream::{ScriptedUpstream, announce_close, models_answer};
pub use weir::{Output, Weir, assert_no_canary};

use std::time::Duration;

/// The mark in everything that must never reach a log.
pub const CANARY: &str = "CANARY-7f3a";

/// The token of every [`Weir`] that is not given another.
pub const TOKEN: &str = "CANARY-7f3a-token-0123456789abcdef";

/// What the scripted model server answers unless told otherwise.
pub const REPLY: &str = "The answer of the model, CANARY-7f3a.";

/// The contract's sentence in the place of an earlier picture that the model does not get.
pub const DISCLOSURE: &str =
    "An image was attached in this earlier message, but this adapter cannot inspect it. Do not infer its contents.";

/// The note in the place of an earlier part of a type that Weir does not know.
pub const OMITTED: &str = "[An attachment of a kind this adapter cannot pass on was omitted here.]";

/// How long the harness waits for anything before it calls the test failed. Only a guard.
pub const CEILING: Duration = Duration::from_secs(40);

/// `text`, marked as secret.
pub fn secret(text: &str) -> String {
    format!("{text} {CANARY}")
}

/// Reads what is there, like `read`, also where the machine was halted meanwhile: reads that have a timeout tell that.
pub fn read_some(source: &mut impl std::io::Read, piece: &mut [u8]) -> std::io::Result<usize> {
    loop {
        match source.read(piece) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}

/// Runs `work` on its own thread; joined by the caller.
pub fn spawn<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> std::thread::JoinHandle<T> {
    std::thread::spawn(work)
}
