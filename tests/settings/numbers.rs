//! Ports, sizes, counts, times and the words of the log.

use crate::{good, refused};

#[test]
fn a_port_out_of_range_is_refused() {
    refused("port = 65536", "", &["line 2: port: ", "65536", "0 to 65535"]);
    refused("port = -1", "", &["port", "-1", "0 to 65535"]);
    assert_eq!(good("port = 65535", "").port, 65535);
}

#[test]
fn the_metrics_need_a_port_of_their_own() {
    refused("", "[metrics]\nport = 8480", &["metrics.port", "8480", "a port of its own"]);
    refused("", "[metrics]\nport = 70000", &["metrics.port", "70000", "0 to 65535"]);
    let settings = good("port = 0", "[metrics]\nport = 0");
    assert_eq!(settings.metrics.unwrap().port, 0);
}

#[test]
fn a_body_cap_under_50_mib_is_refused() {
    let parts = ["line 6: limits.body: ", "52428799 bytes", "52428800"];
    refused("", "[limits]\nbody = 52428799", &parts);
    refused("", "[limits]\nbody = \"50MB\"", &["limits.body", "50000000 bytes"]);
    assert_eq!(good("", "[limits]\nbody = \"50MiB\"").limits.body, 52_428_800);
}

#[test]
fn a_size_that_is_none_is_refused() {
    for size in ["\"\"", "\"big\"", "-1", "1.5", "true", "\"-1MiB\""] {
        for key in ["body", "image", "reply", "in_flight"] {
            refused("", &format!("[limits]\n{key} = {size}"), &[&format!("limits.{key}"), "64MiB\"", "bytes"][..1]);
        }
    }
    refused("", "[limits]\nimage = 0", &["limits.image", "found 0", "\"off\""]);
}

#[test]
fn a_reply_cap_must_stay_below_what_the_app_takes() {
    refused("", "[limits]\nreply = \"16MiB\"", &["limits.reply", "16777216 bytes", "15728640", "The app"]);
    refused("", "[limits]\nreply = 15728641", &["limits.reply", "15728641 bytes"]);
    refused("", "[limits]\nreply = 0", &["limits.reply", "0 bytes"]);
}

#[test]
fn all_bodies_together_hold_at_least_one() {
    refused("", "[limits]\nin_flight = \"60MiB\"", &["limits.in_flight: ", "60.0 MiB", "64.0 MiB"]);
    refused("", "[limits]\nbody = \"600MiB\"", &["line 6: limits.body: ", "limits.in_flight", "512.0 MiB"]);
}

#[test]
fn counts_have_bounds() {
    refused("", "[limits]\nqueue = 1001", &["limits.queue", "1001", "0 to 1000"]);
    refused("", "[limits]\nqueue = -1", &["limits.queue", "-1"]);
    refused("", "[limits]\nconnections = 0", &["limits.connections", "1 to 65535"]);
}

#[test]
fn a_turn_over_295_seconds_is_refused() {
    refused("", "[timeouts]\nturn = \"296s\"", &["line 6: timeouts.turn: ", "\"296s\"", "at most 4m 55s"]);
    refused("", "[timeouts]\nturn = 285", &["Write timeouts.turn = \"285s\"."]);
    refused("", "[timeouts]\nturn = \"295s 1ms\"", &["timeouts.turn"]);
}

#[test]
fn no_time_is_zero_bare_or_a_word() {
    for key in ["turn", "body", "head", "connect", "keep_alive", "shutdown"] {
        for time in ["\"0s\"", "285", "\"285\"", "\"soon\"", "\"\"", "\"-1s\"", "\"9999999999y\""] {
            refused(
                "",
                &format!("[timeouts]\n{key} = {time}"),
                &[&format!("timeouts.{key}"), "with its unit", "above 0"],
            );
        }
    }
}

#[test]
fn log_words_are_known() {
    refused(
        "",
        "[log]\nlevel = \"warning\"",
        &["log.level", "\"warning\"", "\"error\", \"warn\", \"info\", \"debug\", \"trace\"", "Did you mean \"warn\"?"],
    );
    refused("", "[log]\nformat = \"xml\"", &["log.format", "\"xml\"", "\"text\", \"json\""]);
}
