//! Weir.

pub mod upstream;
