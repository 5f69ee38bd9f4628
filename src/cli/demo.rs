//! `weir demo`: the adapter in front of a built-in engine, for people who have no model server yet.

use std::collections::BTreeMap;

use tracing::warn;
use url::Url;

use super::{CommandError, search, serve};
use crate::demo;
use crate::server::listener;
use crate::settings::{Environment, Kind, ModelOverride, Origin, UpstreamSettings};

pub(super) async fn run() -> Result<(), CommandError> {
    let engine = listener::bind(0);
    let engine = engine.map_err(|error| CommandError::Failed(format!("no port for the demo: {}", error.kind())))?;
    let at =
        engine.local_addr().map_err(|error| CommandError::Failed(format!("no port for the demo: {}", error.kind())))?;
    let url = Url::parse(&format!("http://{at}/")).map_err(|error| CommandError::Failed(error.to_string()))?;
    let mut upstream = UpstreamSettings::new("demo", url);
    upstream.kind = Kind::OpenAi;
    let mut settings = search::for_upstream(upstream, &Environment::from_process())?;
    settings.origin = Origin::Demo;
    let blind = ModelOverride { images: Some(false), ..ModelOverride::default() };
    settings.models.overrides = BTreeMap::from([(demo::MODEL.to_owned(), blind)]);
    let log = serve::start_log(&settings.log)?;
    warn!("this is the demo: its replies come from no model");
    tokio::spawn(demo::serve(engine));
    serve::serve(settings, log.writer(), async |_| ()).await
}
