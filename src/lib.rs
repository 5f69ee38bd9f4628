//! Weir.

pub mod settings;
