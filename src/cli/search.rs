//! Looking for model servers where nobody has named one.

use futures_util::future::join_all;
use tokio::time::{Duration, timeout};
use url::Url;

use super::{CommandError, token};
use crate::settings::{Environment, Settings, UpstreamSettings};
use crate::upstream::Upstream;
use crate::upstream::broken::{Broken, Obstacle};
use crate::upstream::dialect::{Dialect, Discovery, DiscoveryError};

/// Where model servers listen unless told otherwise: Ollama, llama.cpp, vLLM, LM Studio.
const USUAL_PORTS: [u16; 4] = [11434, 8080, 8000, 1234];

/// How long the search of a start without configuration may take in all.
const SEARCH_TIME: Duration = Duration::from_secs(2);

/// The context that is asked of an Ollama server that was found, in tokens (less, where a model was trained for less). Its own
/// default of 4096 holds about ten turns, and refusing everything from there on would be honest and useless.
pub(super) const CHOSEN_CONTEXT: u32 = 16_384;

/// A place where a model server was looked for.
#[derive(Debug)]
pub(super) struct Looked {
    /// What is known of it: its address, and the context that an Ollama is asked for.
    pub(super) settings: UpstreamSettings,
    /// What it told, or why it told nothing.
    pub(super) told: Result<Discovery, DiscoveryError>,
}

impl Looked {
    /// Whether a model server listens there: one that lists models, loads one, or wants a key first.
    pub(super) fn is_there(&self) -> bool {
        self.is_usable() || matches!(self.told, Err(DiscoveryError::Credentials(_)))
    }

    /// Whether turns can be sent there, if not at once.
    pub(super) fn is_usable(&self) -> bool {
        matches!(self.told, Ok(_) | Err(DiscoveryError::Loading))
    }
}

/// The settings for the first model server that is found, with Weir's own token file.
pub(super) async fn settings(environment: &Environment) -> Result<Settings, CommandError> {
    let found = at_usual_ports(SEARCH_TIME).await.into_iter().find(Looked::is_usable).ok_or_else(nothing_found)?;
    for_upstream(found.settings, environment)
}

/// The settings for a server that was found rather than configured.
pub(super) fn for_upstream(upstream: UpstreamSettings, environment: &Environment) -> Result<Settings, CommandError> {
    let token_file = if environment.names_a_token() { std::path::PathBuf::new() } else { token::own_file()? };
    Ok(Settings::found(vec![upstream], &token_file, environment)?)
}

/// Looks at the usual ports of this machine, for so long at the most.
pub(super) async fn at_usual_ports(patience: Duration) -> Vec<Looked> {
    let urls = USUAL_PORTS.iter().filter_map(|port| Url::parse(&format!("http://127.0.0.1:{port}/")).ok());
    join_all(urls.map(|url| at(url, patience))).await
}

/// Looks at one address.
pub(super) async fn at(url: Url, patience: Duration) -> Looked {
    let mut settings = UpstreamSettings::new("local", url);
    let told = match Upstream::new(settings.clone(), patience) {
        Ok(upstream) => timeout(patience, upstream.discover()).await.unwrap_or(Err(Broken::Silent.into())),
        // Without a client, which needs the system's certificates where the address is https, there is no connection.
        Err(_) => Err(Broken::NotConnected(Obstacle::Other).into()),
    };
    if told.as_ref().is_ok_and(|discovery| discovery.dialect == Dialect::Ollama) {
        settings.context = Some(CHOSEN_CONTEXT);
    }
    Looked { settings, told }
}

/// The usual ports, for a sentence.
pub(super) fn usual_ports() -> String {
    USUAL_PORTS.map(|port| port.to_string()).join(", ")
}

fn nothing_found() -> CommandError {
    let ports = usual_ports();
    let weir = super::program();
    CommandError::Failed(format!(
        "there is no adapter.toml, and no model server answers on 127.0.0.1 at the usual ports ({ports}). Start one (for \
         example `ollama serve`, or `llama-server -m MODEL.gguf`), or name yours with `{weir} init`; to try Weir without a \
         model, run `{weir} demo`"
    ))
}
