//! The rules for everything but the model servers and the secrets.

use std::time::Duration;

use bytesize::ByteSize;

use super::layers::Layers;
use super::refusal::SettingsError;
use super::tokens::Tokens;
use super::value::Found;
use super::{Format, Level, Limits, LogSettings, MetricsSettings, Origin, Settings, Timeouts, failures, models};

/// The contract's security floor: a smaller cap breaks picture turns without anybody seeing why.
const SMALLEST_BODY: u64 = 52_428_800;
/// The app takes less than 16 MiB; 1 MiB is left for what stands around the text and for fronts.
const LARGEST_REPLY: u64 = 15 * 1024 * 1024;
/// The app gives up at 300 s; what is left must carry the answer back.
const LONGEST_TURN: Duration = Duration::from_secs(295);
/// Longer than anything here can mean, and short enough for every clock.
const LONGEST_OTHER: Duration = Duration::from_secs(24 * 60 * 60);
const MOST_WAITING: u64 = 1_000;
const MOST_CONNECTIONS: u64 = 65_535;

/// Reads what needs no other file. The upstreams and the tokens are still empty.
pub(super) fn without_secrets(layers: &Layers, origin: Origin) -> Result<Settings, SettingsError> {
    let port = port(&layers.require(&["port"])?)?;
    Ok(Settings {
        origin,
        port,
        tokens: Tokens::none(),
        upstreams: Vec::new(),
        models: models::read(layers)?,
        failures: failures::read(layers)?,
        limits: limits(layers)?,
        timeouts: timeouts(layers)?,
        log: log(layers)?,
        metrics: metrics(layers, port)?,
        warnings: Vec::new(),
        places: layers.places(),
    })
}

fn port(found: &Found) -> Result<u16, SettingsError> {
    let number = found.number(0..=u64::from(u16::MAX))?;
    // The range fits.
    Ok(u16::try_from(number).unwrap_or(u16::MAX))
}

fn metrics(layers: &Layers, main: u16) -> Result<Option<MetricsSettings>, SettingsError> {
    let Some(found) = layers.get(&["metrics", "port"]) else {
        return Ok(None);
    };
    let port = port(&found)?;
    if port == main && port != 0 {
        return Err(found.refuse(
            format!("{port}, which is also port"),
            "a port of its own",
            "Choose another number for one of the two.",
        ));
    }
    Ok(Some(MetricsSettings { port }))
}

fn limits(layers: &Layers) -> Result<Limits, SettingsError> {
    let found_body = layers.require(&["limits", "body"])?;
    let body = found_body.size()?;
    if body < SMALLEST_BODY {
        return Err(found_body.refuse(
            sized(body),
            "at least 52428800 bytes (50 MiB)",
            "The contract fixes this floor: a smaller cap breaks picture turns. Write \"50MiB\" or more, or remove \
             the key.",
        ));
    }
    let found_image = layers.require(&["limits", "image"])?;
    let image = match found_image.value.as_str() {
        Some("off") => None,
        _ => match found_image.size() {
            Ok(size) if size > 0 => Some(size),
            _ => {
                return Err(found_image.refuse(
                    found_image.shown(),
                    "\"off\", a size such as \"20MiB\", or a whole number of bytes, above 0",
                    "Write limits.image = \"off\" for no cap of its own.",
                ));
            }
        },
    };
    let found_reply = layers.require(&["limits", "reply"])?;
    let reply = found_reply.size()?;
    if reply == 0 || reply > LARGEST_REPLY {
        return Err(found_reply.refuse(
            sized(reply),
            "above 0 and at most 15728640 bytes (15 MiB)",
            "The app takes less than 16 MiB. Write \"15MiB\" or less, or remove the key.",
        ));
    }
    let found_in_flight = layers.require(&["limits", "in_flight"])?;
    let in_flight = found_in_flight.size()?;
    if in_flight < body {
        let said = if found_in_flight.is_default { &found_body } else { &found_in_flight };
        return Err(said.refuse(
            format!("limits.in_flight of {} under limits.body of {}", sized(in_flight), sized(body)),
            "limits.in_flight (all bodies together) of at least limits.body (one body)",
            "Raise limits.in_flight or lower limits.body; otherwise the largest turn could never start.",
        ));
    }
    Ok(Limits {
        body,
        image,
        reply,
        in_flight,
        queue: count(layers, "queue", 0, MOST_WAITING)?,
        connections: count(layers, "connections", 1, MOST_CONNECTIONS)?,
    })
}

fn count(layers: &Layers, name: &str, least: u64, most: u64) -> Result<usize, SettingsError> {
    let number = layers.require(&["limits", name])?.number(least..=most)?;
    // The bounds fit every usize.
    Ok(usize::try_from(number).unwrap_or(usize::MAX))
}

fn timeouts(layers: &Layers) -> Result<Timeouts, SettingsError> {
    let read = |name: &str, longest: Duration| layers.require(&["timeouts", name])?.duration(longest);
    Ok(Timeouts {
        turn: read("turn", LONGEST_TURN)?,
        body: read("body", LONGEST_OTHER)?,
        head: read("head", LONGEST_OTHER)?,
        connect: read("connect", LONGEST_OTHER)?,
        keep_alive: read("keep_alive", LONGEST_OTHER)?,
        shutdown: read("shutdown", LONGEST_OTHER)?,
    })
}

fn log(layers: &Layers) -> Result<LogSettings, SettingsError> {
    Ok(LogSettings {
        level: layers.require(&["log", "level"])?.word(&[
            ("error", Level::Error),
            ("warn", Level::Warn),
            ("info", Level::Info),
            ("debug", Level::Debug),
            ("trace", Level::Trace),
        ])?,
        format: layers.require(&["log", "format"])?.word(&[("text", Format::Text), ("json", Format::Json)])?,
    })
}

/// The exact bytes, and the same in a unit that a person reads.
fn sized(bytes: u64) -> String {
    format!("{bytes} bytes ({})", ByteSize::b(bytes).display().iec())
}
