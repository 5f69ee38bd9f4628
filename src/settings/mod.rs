//! The configuration: `adapter.toml`, the environment and the embedded defaults, read once into [`Settings`].
//!
//! figment lays the three over each other (the environment wins over the file, the file over the defaults). Everything
//! that can be wrong is found here, before a port is bound, and said in one message that names the place, the key, what
//! was found and what is accepted. No message holds a secret: figment's and toml's own texts print values and source
//! lines, so none of them is passed on.

mod environment;
#[cfg(test)]
mod example;
mod failures;
mod file;
mod layers;
mod models;
mod places;
mod refusal;
mod rules;
mod schema;
mod secret_file;
mod source;
mod tokens;
mod upstream;
mod value;

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use secrecy::SecretString;
use url::Url;

use crate::contract::Text;

pub use environment::Environment;
pub use failures::{FailureExample, FailureRow, Meaning};
pub use places::Places;
pub use refusal::{Fault, SettingsError};
pub use schema::variable;
pub use secret_file::as_shell_word;
pub use source::{Source, configuration_folder, find};
pub use tokens::Tokens;
pub use upstream::address;

/// Everything that Weir was told, checked and complete.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where the settings came from.
    pub origin: Origin,
    /// The port on 127.0.0.1; 0 asks the system for any free one.
    pub port: u16,
    /// The bearer tokens that are let in; at least one.
    pub tokens: Tokens,
    /// The model servers, in the order of their names; at least one.
    pub upstreams: Vec<UpstreamSettings>,
    /// Which models are offered, under which names, and what is known about them.
    pub models: ModelSettings,
    /// The person's own rows for the errors of model servers, in their order; they count before those that come with Weir.
    pub failures: Vec<FailureRow>,
    /// Caps on sizes and numbers.
    pub limits: Limits,
    /// Caps on time.
    pub timeouts: Timeouts,
    /// What is logged, and how.
    pub log: LogSettings,
    /// The metrics listener; `None` when it is off.
    pub metrics: Option<MetricsSettings>,
    /// What works and should be changed nevertheless, such as a token file that other users can read; said once at the start.
    pub warnings: Vec<Warning>,
    /// Where each key stands, for what is found out about its value later.
    pub places: Places,
}

/// Something that works and should be changed nevertheless.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// The file (and line) or the variable.
    pub place: String,
    /// The key.
    pub key: String,
    /// What was seen.
    pub seen: String,
    /// What would be right.
    pub accepted: String,
    /// The command that mends it.
    pub mend: String,
}

impl std::fmt::Display for Warning {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { place, key, seen, accepted, mend } = self;
        write!(formatter, "{place}: {key}: found {seen}; accepted: {accepted}. Run {mend}")
    }
}

/// Where the settings came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// This configuration file (and the environment over it).
    File(PathBuf),
    /// The environment alone.
    Environment,
    /// Nothing was configured: Weir found the model server by itself.
    Found,
    /// The demo, which is in front of its own engine whatever is configured.
    Demo,
}

/// One model server.
#[derive(Clone)]
pub struct UpstreamSettings {
    /// The name of its table: `[a-z0-9_-]+`. It appears in logs.
    pub name: String,
    /// The base to which `/v1/…` is appended: http or https, no user info, no query, no trailing `/v1` or `/`. The path of
    /// a bare origin is `/`, as always with [`Url`].
    pub url: Url,
    /// Which language the server speaks.
    pub kind: Kind,
    /// The bearer key for the server, from `api_key_file`.
    pub api_key: Option<SecretString>,
    /// The PEM text of the certificates that are trusted for this server, from `ca_file`; only with https.
    pub certificate_authorities: Option<Vec<u8>>,
    /// How many turns the server runs at once; `None` is `"auto"`.
    pub concurrency: Option<NonZeroU32>,
    /// The context in tokens that Weir asks the server for (Ollama: `num_ctx`); `None` asks for nothing.
    pub context: Option<u32>,
    /// How long Ollama keeps a model loaded, in Ollama's own words: a duration such as `30m`, or a bare number of seconds
    /// such as `-1` (for ever), which Ollama takes only as a JSON number.
    pub keep_alive: Option<String>,
}

impl UpstreamSettings {
    /// The settings of a model server that was found by itself: nothing is known but its name and address.
    pub fn new(name: &str, url: Url) -> Self {
        Self {
            name: name.to_owned(),
            url,
            kind: Kind::Auto,
            api_key: None,
            certificate_authorities: None,
            concurrency: None,
            context: None,
            keep_alive: None,
        }
    }
}

/// Leaves the certificates out: a file of certificates may hold a private key by mistake.
impl std::fmt::Debug for UpstreamSettings {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("UpstreamSettings")
            .field("name", &self.name)
            .field("url", &self.url.as_str())
            .field("kind", &self.kind)
            .field("api_key", &self.api_key)
            .field("concurrency", &self.concurrency)
            .field("context", &self.context)
            .field("keep_alive", &self.keep_alive)
            .finish_non_exhaustive()
    }
}

/// Which language a model server speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Recognised by what the server answers.
    Auto,
    /// Ollama's own `/api`.
    Ollama,
    /// llama.cpp's `llama-server`.
    LlamaCpp,
    /// vLLM.
    Vllm,
    /// Any other server with the OpenAI routes.
    OpenAi,
}

/// Which models are offered, under which names, and what is known about them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ModelSettings {
    /// The model that is served when the app names none; `None` is the first that can chat.
    pub default: Option<String>,
    /// The model that gets a picture of the current turn when the app names none and the default is not known to see.
    pub pictures: Option<String>,
    /// Whether the default model is loaded before the first turn asks for it.
    pub warm_up: bool,
    /// Globs of the models that are offered; `None` is all that can chat. Never empty.
    pub expose: Option<Vec<String>>,
    /// Another name for a model; never a name for another alias.
    pub alias: BTreeMap<String, String>,
    /// What the person knows better than the server, by model id.
    pub overrides: BTreeMap<String, ModelOverride>,
}

/// What the person knows better than the server about one model, and how it is to answer.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ModelOverride {
    /// Whether the model sees pictures; `None` is `"auto"`: as the server says.
    pub images: Option<bool>,
    /// The context in tokens, above 0; `None` is as the upstream says.
    pub context: Option<u32>,
    /// How much the model is asked to reason.
    pub reasoning: Reasoning,
    /// How freely it chooses its words, from 0 to 2; `None` leaves that to the server.
    pub temperature: Option<f64>,
    /// The most tokens of one answer, above 0; `None` sets no limit beside the one that the turn's time sets.
    pub longest_answer: Option<u32>,
    /// What it is told before every conversation; never empty.
    pub system_prompt: Option<Text>,
}

/// How much a model is asked to reason before it answers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Reasoning {
    /// As the model does by itself.
    #[default]
    Default,
    /// Not at all.
    Off,
    /// A little.
    Low,
    /// Some.
    Medium,
    /// Much.
    High,
}

/// Caps on sizes (in bytes) and numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The largest request body in bytes; at least 52,428,800, as the contract's security floor says.
    pub body: u64,
    /// The largest picture of the current turn in bytes; `None` leaves it to `body`.
    pub image: Option<u64>,
    /// The largest answer in bytes of encoded JSON; at most 15 MiB, since the app takes less than 16 MiB.
    pub reply: u64,
    /// The bytes that all bodies may take together; at least `body`, or the largest turn could never start.
    pub in_flight: u64,
    /// How many turns may wait; 0 lets none wait.
    pub queue: usize,
    /// How many connections may be open at once.
    pub connections: usize,
}

/// Caps on time; each is above zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// From the last byte of the body to the answer; at most 295 s, since the app gives up at 300 s.
    pub turn: Duration,
    /// From the end of the head to the last byte of the body.
    pub body: Duration,
    /// From the first byte of a request's head to its end.
    pub head: Duration,
    /// To connect to a model server.
    pub connect: Duration,
    /// How long an idle connection of a client stays open.
    pub keep_alive: Duration,
    /// How long running turns may take to end after the signal to stop.
    pub shutdown: Duration,
}

/// What is logged, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogSettings {
    /// The least important thing that is logged.
    pub level: Level,
    /// How a line looks.
    pub format: Format,
}

/// How important a log line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Something failed.
    Error,
    /// Something needs a person's eye.
    Warn,
    /// What happened, one line for each turn.
    Info,
    /// How it happened.
    Debug,
    /// Everything.
    Trace,
}

/// How a log line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// For a person.
    Text,
    /// One JSON object a line.
    Json,
}

/// The metrics listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetricsSettings {
    /// Its port on 127.0.0.1; 0 asks the system for any free one.
    pub port: u16,
}

/// Reads and checks the settings of this source, with the environment over them.
///
/// # Errors
/// [`SettingsError::NothingConfigured`] if the source is [`Source::Nothing`] and the environment names no model server
/// either, with everything else in order: the caller may then look for one and go on with [`Settings::found`].
/// [`SettingsError::Refused`] for whatever is wrong.
pub fn load(source: &Source, environment: &Environment) -> Result<Settings, SettingsError> {
    let layers = layers::Layers::read(source, environment)?;
    let origin = match source {
        Source::File(path) => Origin::File(path.clone()),
        Source::Nothing => Origin::Environment,
    };
    let mut settings = rules::without_secrets(&layers, origin)?;
    settings.upstreams = upstream::read_all(&layers, &mut settings.warnings)?;
    if settings.upstreams.is_empty() {
        return Err(match source {
            Source::Nothing => SettingsError::NothingConfigured,
            Source::File(path) => refusal::Fault {
                place: path.display().to_string(),
                key: "[upstream.NAME]".to_owned(),
                found: "no model server".to_owned(),
                accepted: "at least one table for a model server".to_owned(),
                mend: "Add [upstream.local] with url = \"http://127.0.0.1:11434\", or where your server listens."
                    .to_owned(),
            }
            .into(),
        });
    }
    upstream::refuse_weir_itself(&layers, &settings)?;
    settings.tokens = tokens::read(&layers, environment, None, &mut settings.warnings)?;
    Ok(settings)
}

impl Settings {
    /// The settings of a start without configuration: the defaults, the environment over them, and the model servers that
    /// were found. The tokens are `ADAPTER_TOKEN`, else those of `ADAPTER_TOKEN_FILE`, else those of `token_file`
    /// ([`Environment::names_a_token`] says whether that file is needed at all).
    ///
    /// # Errors
    /// [`SettingsError::Refused`] for whatever is wrong in the environment or with the token file.
    pub fn found(
        upstreams: Vec<UpstreamSettings>,
        token_file: &Path,
        environment: &Environment,
    ) -> Result<Self, SettingsError> {
        let layers = layers::Layers::read(&Source::Nothing, environment)?;
        let mut settings = rules::without_secrets(&layers, Origin::Found)?;
        settings.upstreams = upstreams;
        settings.tokens = tokens::read(&layers, environment, Some(token_file), &mut settings.warnings)?;
        Ok(settings)
    }
}
