//! `weir healthcheck`: what a container's health check runs, since its image has no shell and no curl.

use std::path::Path;
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{HeaderValue, StatusCode};

use super::{CommandError, settings_of_running};
use crate::upstream::client::trust_only;

/// The app itself gives the list of models 15 s; a healthy Weir needs none of them.
const PATIENCE: Duration = Duration::from_secs(5);

pub(super) async fn run(config: Option<&Path>) -> Result<(), CommandError> {
    let settings = settings_of_running(config)?;
    if settings.port == 0 {
        return Err(CommandError::Failed(
            "port is 0, so nobody can tell where the adapter listens; set a fixed port".into(),
        ));
    }
    let url = format!("http://127.0.0.1:{}/v1/models", settings.port);
    let token = settings.tokens.iter().next().unwrap_or_default();
    let mut bearer = HeaderValue::from_bytes(&[b"Bearer ".as_slice(), token].concat())
        .map_err(|_| CommandError::Configuration("the token cannot be sent in an HTTP header".to_owned()))?;
    bearer.set_sensitive(true);
    let no_client = || CommandError::Failed("no HTTP client could be made".to_owned());
    // No certificate is needed, so none is read: an image may hold none.
    let tls = trust_only(&[]).ok_or_else(no_client)?;
    let client = reqwest::Client::builder().no_proxy().tls_backend_preconfigured(tls).timeout(PATIENCE).build();
    let client = client.map_err(|_| no_client())?;
    match client.get(&url).header(AUTHORIZATION, bearer).send().await.map(|response| response.status()) {
        Ok(StatusCode::OK) => {
            println!("well: {url} lists models");
            Ok(())
        }
        Ok(StatusCode::UNAUTHORIZED) => Err(CommandError::Failed(format!(
            "{url} does not accept this token; was the adapter started with another?"
        ))),
        Ok(status) => Err(CommandError::Failed(format!("{url} answers {status}: no model server has answered it yet"))),
        Err(error) if error.is_timeout() => Err(CommandError::Failed(format!("{url} does not answer in time"))),
        Err(_) => Err(CommandError::Failed(format!("nothing answers at {url}; is the adapter running?"))),
    }
}
