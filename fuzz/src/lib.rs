//! What must hold for any bytes that a stranger sends, one function a fuzz target.
//!
//! Each takes the bytes that the fuzzer made and panics where Weir broke a promise. The promises are held against a second,
//! simpler reading of the same bytes wherever there is one: a reader that only never panics may still read the wrong thing.

mod allocations;
mod chance;
mod classifier;
mod data_uri;
mod framing;
mod image;
mod naive;
mod request;

pub use classifier::{classifier, classifier_input};
pub use data_uri::{data_uri, data_uri_input};
pub use framing::{ndjson, sse};
pub use request::request;
