//! What is effective, in lines that a person reads: at the start in the log, and on the screen of `weir check`.

use std::time::Duration;

use bytesize::ByteSize;

use crate::settings::{Origin, Settings};
use crate::upstream::dialect::Discovery;

/// What a model server is, in its own words.
pub(super) fn server(discovery: &Discovery) -> String {
    let server = discovery.server.as_deref().unwrap_or("an OpenAI-compatible server");
    match &discovery.version {
        Some(version) => format!("{server} {version}"),
        None => server.to_owned(),
    }
}

/// A text that somebody else wrote, without anything that could move the cursor or begin a line.
pub(super) fn on_one_line(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { '?' } else { letter }).collect()
}

/// A number of bytes for a person.
pub(super) fn size(bytes: u64) -> String {
    ByteSize::b(bytes).display().iec().to_string()
}

/// How long something took, for a person.
pub(super) fn time(time: Duration) -> String {
    match time.as_secs() {
        0 => format!("{} ms", time.as_millis()),
        seconds if time.subsec_nanos() == 0 => format!("{seconds} s"),
        _ => format!("{:.1} s", time.as_secs_f64()),
    }
}

/// Where the configuration came from and every limit that is in force.
pub(super) fn effective(settings: &Settings) -> Vec<String> {
    let origin = match &settings.origin {
        Origin::File(path) => format!("configuration: {}", path.display()),
        Origin::Environment => "configuration: environment variables".to_owned(),
        Origin::Demo => "configuration: that of the demo; adapter.toml is not read".to_owned(),
        Origin::Found => "configuration: none; the model server was found on this machine".to_owned(),
    };
    let limits = &settings.limits;
    let timeouts = &settings.timeouts;
    let time = |time: Duration| humantime::format_duration(time).to_string();
    vec![
        origin,
        format!(
            "limits: body {}, image {}, reply {}, in flight {}, queue {}, connections {}",
            size(limits.body),
            limits.image.map_or_else(|| "off".to_owned(), size),
            size(limits.reply),
            size(limits.in_flight),
            limits.queue,
            limits.connections
        ),
        format!(
            "timeouts: turn {}, body {}, head {}, connect {}, keep-alive {}, shutdown {}",
            time(timeouts.turn),
            time(timeouts.body),
            time(timeouts.head),
            time(timeouts.connect),
            time(timeouts.keep_alive),
            time(timeouts.shutdown)
        ),
    ]
}
