//! Asking the adapter that runs on this machine.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::{HeaderValue, StatusCode};

use super::{CommandError, settings_of_running};
use crate::upstream::tls::trust_only;

/// The app itself gives the list of models 15 s; a healthy Weir needs none of them.
const PATIENCE: Duration = Duration::from_secs(5);

/// What it answered.
pub(super) struct Answer {
    /// Where it was asked.
    pub(super) url: String,
    pub(super) status: StatusCode,
    pub(super) body: Bytes,
}

/// Asks the adapter at the configured port, with the configured token. A token that it does not accept is an error.
pub(super) async fn ask(config: Option<&Path>, path: &str) -> Result<Answer, CommandError> {
    let settings = settings_of_running(config)?;
    if settings.port == 0 {
        return Err(CommandError::Failed(
            "port is 0, so nobody can tell where the adapter listens; set a fixed port".into(),
        ));
    }
    let url = format!("http://127.0.0.1:{}{path}", settings.port);
    let token = settings.tokens.iter().next().unwrap_or_default();
    let mut bearer = HeaderValue::from_bytes(&[b"Bearer ".as_slice(), token].concat())
        .map_err(|_| CommandError::Configuration("the token cannot be sent in an HTTP header".to_owned()))?;
    bearer.set_sensitive(true);
    let no_client = || CommandError::Failed("no HTTP client could be made".to_owned());
    // No certificate is needed, so none is read: an image may hold none.
    let tls = trust_only(&[]).ok_or_else(no_client)?;
    let client = reqwest::Client::builder().no_proxy().tls_backend_preconfigured(tls).timeout(PATIENCE).build();
    let client = client.map_err(|_| no_client())?;
    let whole = async {
        let response = client.get(&url).header(AUTHORIZATION, bearer).send().await?;
        Ok::<_, reqwest::Error>((response.status(), response.bytes().await?))
    };
    match whole.await {
        Ok((StatusCode::UNAUTHORIZED, _)) => Err(CommandError::Failed(format!(
            "{url} does not accept this token; was the adapter started with another?"
        ))),
        Ok((status, body)) => Ok(Answer { url, status, body }),
        Err(error) if error.is_timeout() => Err(CommandError::Failed(format!("{url} does not answer in time"))),
        Err(_) => Err(CommandError::Failed(format!("nothing answers at {url}; is the adapter running?"))),
    }
}
