//! What is said when the configuration can't be used.

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

/// The parts of every refusal, so that none is forgotten.
pub(super) struct Refusal<'a> {
    /// The file (and line) or the variable.
    pub(super) place: String,
    /// The key, or what stands in its place.
    pub(super) key: &'a str,
    /// What was found, never a secret's value.
    pub(super) found: String,
    /// What is accepted.
    pub(super) accepted: String,
    /// What to do: whole sentences.
    pub(super) mend: String,
}

impl From<Refusal<'_>> for SettingsError {
    fn from(refusal: Refusal<'_>) -> Self {
        let Refusal { place, key, found, accepted, mend } = refusal;
        Self::Refused(format!("{place}: {key}: found {found}; accepted: {accepted}. {mend}"))
    }
}
