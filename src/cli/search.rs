//! The start without configuration: look for a model server on the usual ports of this machine.

use futures_util::future::join_all;
use tokio::time::{Duration, timeout};
use url::Url;

use super::{CommandError, token};
use crate::settings::{Environment, Settings, UpstreamSettings};
use crate::upstream::Upstream;
use crate::upstream::dialect::{Dialect, DiscoveryError};

/// Where model servers listen unless told otherwise: Ollama, llama.cpp, vLLM, LM Studio.
const USUAL_PORTS: [u16; 4] = [11434, 8080, 8000, 1234];

/// How long the search may take in all.
const SEARCH_TIME: Duration = Duration::from_secs(2);

/// The context that is asked of an Ollama server that was found, in tokens (less, where a model was trained for less). Its own
/// default of 4096 holds about ten turns, and refusing everything from there on would be honest and useless.
const CHOSEN_CONTEXT: u32 = 16_384;

/// The settings for the first model server that is found, with Weir's own token file.
pub(super) async fn settings(environment: &Environment) -> Result<Settings, CommandError> {
    let found = join_all(USUAL_PORTS.map(look)).await.into_iter().flatten().next().ok_or_else(nothing_found)?;
    for_upstream(found, environment)
}

/// The settings for a server that was found rather than configured.
pub(super) fn for_upstream(upstream: UpstreamSettings, environment: &Environment) -> Result<Settings, CommandError> {
    let token_file = if environment.names_a_token() { std::path::PathBuf::new() } else { token::own_file()? };
    Ok(Settings::found(upstream, &token_file, environment)?)
}

/// The server on a port of this machine, if there is one that lists models, or says that it is loading one.
async fn look(port: u16) -> Option<UpstreamSettings> {
    let url = Url::parse(&format!("http://127.0.0.1:{port}/")).ok()?;
    let settings = UpstreamSettings::new("local", url);
    let upstream = Upstream::new(settings.clone(), SEARCH_TIME).ok()?;
    match timeout(SEARCH_TIME, upstream.discover()).await.ok()? {
        Ok(discovery) if discovery.dialect == Dialect::Ollama => {
            Some(UpstreamSettings { context: Some(CHOSEN_CONTEXT), ..settings })
        }
        Ok(_) | Err(DiscoveryError::Loading) => Some(settings),
        Err(_) => None,
    }
}

fn nothing_found() -> CommandError {
    let ports = USUAL_PORTS.map(|port| port.to_string()).join(", ");
    CommandError::Failed(format!(
        "there is no adapter.toml, and no model server answers on 127.0.0.1 at the usual ports ({ports}). Start one (for \
         example `ollama serve`, or `llama-server -m MODEL.gguf`), or name yours in an adapter.toml; to try Weir without a \
         model, run `weir demo`"
    ))
}
