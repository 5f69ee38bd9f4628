//! What is said when the configuration can't be used.

use std::fmt;

/// Why there are no settings. Its text is one message for a person; it never holds a secret.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// There is no configuration file and the environment names no model server, but nothing is wrong either.
    #[error(
        "nothing is configured: there is no adapter.toml and no ADAPTER_UPSTREAM__LOCAL__URL in the environment. \
         Copy adapter.toml.example to adapter.toml, or set the variable to the address of your model server."
    )]
    NothingConfigured,
    /// Something is wrong; the text names the place, the key, what was found, what is accepted and how to mend it.
    #[error("{0}")]
    Refused(String),
}

/// Something that is wrong with the configuration, in the parts that each message about it has, so that none is forgotten. None of
/// them ever holds a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The file (and line) or the variable.
    pub place: String,
    /// The key, or what stands in its place.
    pub key: String,
    /// What was found, never a secret's value.
    pub found: String,
    /// What is accepted.
    pub accepted: String,
    /// What to do: whole sentences.
    pub mend: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, key, found, accepted, mend } = self;
        write!(formatter, "{place}: {key}: found {found}; accepted: {accepted}. {mend}")
    }
}

impl From<Fault> for SettingsError {
    fn from(fault: Fault) -> Self {
        Self::Refused(fault.to_string())
    }
}
