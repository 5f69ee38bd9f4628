//! `weir doctor`: does the running adapter keep the contract, and what around it could bite?
//!
//! `weir check` looks at the configuration and the model servers before anything runs; this asks the adapter itself, over its
//! port, as the phone would. It changes nothing.

mod finding;
pub mod picture;
mod probes;
mod surroundings;
mod turns;
mod wire;

use std::path::Path;

use super::unreachable::Surroundings;
use super::{CommandError, settings_of_running};
use finding::{Finding, Report, Verdict};
use turns::Turns;
use wire::Adapter;

/// Asks the adapter, then looks around. `deep` also shows the model a picture.
pub(super) async fn run(config: Option<&Path>, deep: bool, json: bool) -> Result<(), CommandError> {
    let settings = settings_of_running(config)?;
    if settings.port == 0 {
        return Err(CommandError::Configuration(
            "port is 0, so nobody can tell where the adapter listens; set a fixed port".to_owned(),
        ));
    }
    let token = settings.tokens.iter().next().unwrap_or_default();
    let adapter = Adapter::new(settings.port, token)
        .ok_or_else(|| CommandError::Configuration("the token cannot be sent in an HTTP header".to_owned()))?;
    let mut report = Report::new(json);
    report.heading(&format!("The adapter at {}", adapter.url()));
    let slowest = look_at(&adapter, deep, &mut report).await?;
    report.heading("Around it");
    report.add_all(surroundings::findings(&settings, &Surroundings::here(), slowest).await);
    report.finish(&adapter.url(), deep);
    match report.count(Verdict::Failed) {
        0 => Ok(()),
        _ => Err(CommandError::FailedAsShown),
    }
}

/// All probes of the adapter itself; how long the slowest turn took.
async fn look_at(
    adapter: &Adapter,
    deep: bool,
    report: &mut Report,
) -> Result<Option<tokio::time::Duration>, CommandError> {
    let (finding, list) = probes::models(adapter).await;
    report.add(finding);
    // Whatever else is asked, an adapter that is not there or does not let us in has only this to say.
    let Some(list) = list else { return Ok(None) };
    let auth = probes::auth(adapter).await;
    let refuses_strangers =
        auth.iter().all(|finding| finding.verdict != Verdict::Failed || finding.id.starts_with("auth-models"));
    report.add_all(auth);
    report.add_all(probes::refusals(adapter, refuses_strangers).await);
    report.add_all(probes::routes(adapter).await);
    report.add(probes::large_body(adapter).await);
    let mut turns = Turns::default();
    report.add(turns.plain(adapter).await);
    report.add(turns.named(adapter, &list).await);
    if !turns.are_answered {
        let picture = deep.then_some(turns::PICTURE);
        let further = turns::FURTHER.into_iter().chain(picture);
        report.add_all(further.map(|id| Finding::skipped(id, "no turn is answered")));
        return Ok(None);
    }
    report.add(turns.unknown_model(adapter, &list).await);
    report.add(turns.history(adapter).await);
    report.add(turns.stream(adapter).await);
    if deep {
        report.add(turns.picture(adapter, &list).await?);
    }
    Ok(turns.slowest)
}
