//! `weir healthcheck`: what a container's health check runs, since its image has no shell and no curl.

use std::path::Path;

use http::StatusCode;

use super::screen::tell;
use super::{CommandError, running};

pub(super) async fn run(config: Option<&Path>) -> Result<(), CommandError> {
    let answer = running::ask(config, "/v1/models").await?;
    let (url, status) = (&answer.url, answer.status);
    if status != StatusCode::OK {
        return Err(CommandError::Failed(format!("{url} answers {status}: no model server has answered it yet")));
    }
    tell!("well: {url} lists models");
    Ok(())
}
