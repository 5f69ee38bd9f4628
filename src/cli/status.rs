//! `weir status`: one screen of a running Weir, above all what became of the last turns.

use std::path::Path;
use std::time::Duration;

use anstyle::Style;
use http::StatusCode;

use super::screen::{BAD, CAUTION, GOOD, QUIET, STRONG, WIDTH, say, tell};
use super::{CommandError, running};
use crate::observe::Status;
use crate::observe::status::{ModelStatus, TurnStatus};
use crate::server::routes;

/// How many models are shown: more would push the turns off the screen.
const MODELS: usize = 8;

/// How many turns are shown.
const TURNS: usize = 10;

pub(super) async fn run(config: Option<&Path>) -> Result<(), CommandError> {
    let answer = running::ask(config, routes::STATUS).await?;
    let status: Option<Status> = Some(&answer.body)
        .filter(|_| answer.status == StatusCode::OK)
        .and_then(|body| serde_json::from_slice(body).ok());
    let status = status.ok_or_else(|| {
        CommandError::Failed(format!("{} is not answered as by this version of Weir; what runs there?", answer.url))
    })?;
    show(&status);
    Ok(())
}

fn show(status: &Status) {
    let up = span(Duration::from_secs(status.up_seconds));
    tell!(
        "{STRONG}Weir {}{STRONG:#}, up for {up}: {} turn(s) running, {} waiting",
        status.version,
        status.running,
        status.queued
    );
    tell!("\n{STRONG}Model servers{STRONG:#}");
    for upstream in &status.upstreams {
        let style = if upstream.up { GOOD } else { BAD };
        say(&format!("  {style}{}{style:#} ", upstream.name), 4, &upstream.state);
    }
    tell!("\n{STRONG}Models{STRONG:#}, the default first");
    for model in status.models.iter().take(MODELS) {
        say("  ", 4, &describe_model(model));
    }
    match status.models.len() {
        0 => tell!("  none yet"),
        count if count > MODELS => tell!("  and {} more", count - MODELS),
        _ => {}
    }
    tell!("\n{STRONG}Last turns{STRONG:#}, the newest first");
    if status.turns.is_empty() {
        tell!("  none since the start");
    }
    for turn in status.turns.iter().take(TURNS) {
        show_turn(turn);
    }
}

fn describe_model(model: &ModelStatus) -> String {
    let images = match (model.images, &model.pictures_go_to) {
        (Some(true), _) => "sees pictures".to_owned(),
        (Some(false), None) => "text only".to_owned(),
        (Some(false), Some(id)) => format!("text only; {id} gets pictures where the app names no model"),
        (None, None) => "pictures unknown, so declined".to_owned(),
        (None, Some(id)) => {
            format!("{id} gets pictures where the app names no model; where it names this one, unknown, so declined")
        }
    };
    let context = model.context.map_or(String::new(), |tokens| format!("; {tokens} tokens of context"));
    format!("{}: {images}{context}", model.id)
}

fn show_turn(turn: &TurnStatus) {
    let (style, word) = outcome(turn);
    let answer = match (turn.status, turn.code.as_deref()) {
        (Some(status), Some(code)) => format!(" {status} {code}"),
        (Some(status), None) if status != 200 => format!(" {status}"),
        _ => String::new(),
    };
    let model = turn.model.as_deref().map_or(String::new(), |model| format!(", {model}"));
    let tokens = turn.completion_tokens.map_or(String::new(), |tokens| format!(", {tokens} tokens"));
    let ago = span(Duration::from_secs(turn.seconds_ago));
    let line = format!("{style}{word}{style:#}{answer} after {}{model}{tokens}", took(turn));
    // The styles take no room on the screen.
    let plain = format!("  {word}{answer} after {}{model}{tokens}", took(turn));
    match WIDTH.checked_sub(plain.chars().count() + ago.len() + " ago".len() + 1) {
        Some(room) => tell!("  {line} {:room$}{QUIET}{ago} ago{QUIET:#}", ""),
        None => say("  ", 6, &format!("{line}, {QUIET}{ago} ago{QUIET:#}")),
    }
    if let Some(reason) = &turn.reason {
        say("      ", 6, reason);
    }
    if !turn.repairs.is_empty() {
        say("      ", 6, &format!("mended for the model server: {}", turn.repairs.join(", ")));
    }
}

fn outcome(turn: &TurnStatus) -> (Style, &'static str) {
    match turn.outcome.as_str() {
        "answered" => (GOOD, "answered"),
        "refused" => (CAUTION, "refused"),
        "hung_up" => (CAUTION, "hung up by the phone"),
        _ => (BAD, "failed"),
    }
}

/// How long a turn took, and how much of that it waited.
fn took(turn: &TurnStatus) -> String {
    let seconds = |milliseconds: u64| format!("{:.1} s", Duration::from_millis(milliseconds).as_secs_f64());
    let waited = turn.queue_milliseconds;
    let waiting = if waited >= 100 { format!(" ({} in the queue)", seconds(waited)) } else { String::new() };
    format!("{}{waiting}", seconds(turn.total_milliseconds))
}

/// A span of time by its largest unit or two.
fn span(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3600 % 24),
    }
}
