//! The Conduck Adapter Contract v1 (revision 1.3) as types and pure functions.
//!
//! No I/O, no clock, no knowledge of any backend: what a request may be, what an answer looks like, which failure has which status.

mod abridged;
mod bulk;
pub mod conversation;
pub mod disclosure;
pub mod failure;
pub mod image;
pub mod models;
pub mod reply;
pub mod text;

pub use conversation::{Conversation, Message, Part, Role};
pub use failure::{Code, Failure};
pub use image::{Image, ImageKind};
pub use reply::{FinishReason, Reply, Usage};
pub use text::Text;
