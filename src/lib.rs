//! Weir: the adapter between the Conduck app and the model server that a person runs at home.
//!
//! Who may use whom goes one way: `cli -> server -> turn -> catalog -> upstream -> contract`; a later one never uses an earlier
//! one. `settings` and `observe` are used by all and use only `contract`. `json` and `buffer` use nothing of ours, and `contract`
//! nothing but `json`.
//!
//! | module | what it is for |
//! |---|---|
//! | [`json`] | JSON that is read where it stands; used by `contract` and `upstream`, and uses nothing of ours |
//! | [`contract`] | the Conduck contract as types and pure functions |
//! | [`settings`] | `adapter.toml` and the environment, read and validated |
//! | [`observe`] | log and metrics |
//! | [`buffer`] | memory for what a peer sends |
//! | [`upstream`] | HTTP as the model servers see it |
//! | [`catalog`] | which models there are and what they can do |
//! | [`turn`] | the life of one turn |
//! | [`server`] | HTTP as the phone sees it |
//! | [`demo`] | the built-in engine for first runs |
//! | [`cli`] | what a person types |

pub mod buffer;
pub mod catalog;
pub mod cli;
pub mod contract;
pub mod demo;
pub mod json;
pub mod observe;
pub mod server;
pub mod settings;
pub mod turn;
pub mod upstream;
