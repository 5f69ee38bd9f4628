//! HTTP as the model servers see it.

pub mod classify;
