//! `weir check`: is the configuration sound, do the model servers answer, what is effective?

use std::path::Path;

use super::{CommandError, classifier, report, settings_or_search};
use crate::catalog::Catalog;
use crate::catalog::snapshot::{Candidate, Entry};
use crate::upstream::dialect::{Discovery, DiscoveryError, Sight};

/// A message of a chat with a model at home, with its answer, in tokens: for saying how much a context holds.
const TOKENS_A_TURN: u64 = 400;

pub(super) async fn run(config: Option<&Path>) -> Result<(), CommandError> {
    let settings = settings_or_search(config).await?;
    // Rows of one's own that miss their examples are a fault of the configuration, too.
    classifier(&settings)?;
    for line in report::effective(&settings) {
        println!("{line}");
    }
    for warning in &settings.warnings {
        println!("warning: {warning}");
    }
    let catalog = Catalog::new(&settings).map_err(|error| CommandError::Configuration(error.to_string()))?;
    let mut silent = Vec::new();
    for (place, upstream) in catalog.upstreams().iter().enumerate() {
        let found = catalog.look(place).await;
        println!("\nupstream {} ({}): {}", upstream.settings.name, upstream.settings.url, describe(&found));
        if found.is_err() {
            silent.push(upstream.settings.name.as_str());
        }
    }
    let snapshot = catalog.now();
    println!("\nmodels, the default first:");
    for entry in &snapshot.entries {
        describe_model(entry, catalog.upstreams().len() > 1, |candidate| {
            catalog.upstream(candidate.upstream).settings.name.clone()
        });
    }
    let default = snapshot.default.as_deref();
    if snapshot.entries.is_empty() {
        return Err(CommandError::Failed("no model can be served".to_owned()));
    }
    if !silent.is_empty() {
        return Err(CommandError::Failed(format!("no answer from upstream {}", silent.join(", "))));
    }
    match default {
        Some(default) if snapshot.find(default).is_none() => {
            Err(CommandError::Failed(format!("models.default is {default:?}, which no model server has")))
        }
        _ => {
            println!("\nall is well");
            Ok(())
        }
    }
}

fn describe(found: &Result<Discovery, DiscoveryError>) -> String {
    match found {
        Ok(discovery) => {
            let server = discovery.server.as_deref().unwrap_or("an OpenAI-compatible server");
            let version = discovery.version.as_deref().map(|version| format!(" {version}")).unwrap_or_default();
            let slots = discovery.slots.map(|slots| format!(", {slots} turn(s) at once")).unwrap_or_default();
            format!("{server}{version}, spoken to as {}{slots}", discovery.dialect.describe())
        }
        Err(error) => format!("no list of models: {error}"),
    }
}

fn describe_model(entry: &Entry, name_upstream: bool, name: impl Fn(&Candidate) -> String) {
    println!("  {}", entry.id);
    for candidate in &entry.candidates {
        if name_upstream {
            println!("    on {}", name(candidate));
        }
        match candidate.sight {
            Sight::Sees(how) => println!("    pictures: yes (from {how})"),
            Sight::Blind(how) => println!("    pictures: no (from {how})"),
            Sight::Unknown => println!(
                "    pictures: unknown, so declined; if it sees them: [models.override.\"{}\"] images = true",
                entry.id
            ),
        }
        match candidate.context {
            Some(tokens) => println!("    context: {tokens} tokens, about {} turns", tokens / TOKENS_A_TURN),
            None => println!("    context: unknown"),
        }
    }
}
