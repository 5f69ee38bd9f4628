//! What around an adapter could bite: its model servers and their contexts, proxies, containers, fronts, files that others can read.
//!
//! None of it is a fault of the adapter, so none of it fails: a turn that it does break was tried and has failed by itself.

use tokio::time::Duration;
use url::Host;

use super::finding::{Finding, Trouble};
use crate::catalog::snapshot::{Candidate, Snapshot, turns_in};
use crate::catalog::{Catalog, SMALL_CONTEXT};
use crate::cli::report;
use crate::cli::search::{self, CHOSEN_CONTEXT, Looked};
use crate::cli::unreachable::{Surroundings, is_loopback};
use crate::settings::{Origin, Settings, UpstreamSettings};
use crate::upstream::dialect::{Dialect, Discovery, DiscoveryError};

/// How long the usual ports are looked at where there is no configuration.
const SEARCH_TIME: Duration = Duration::from_secs(2);
/// After this long Cloudflare ends a request that has no answer yet.
const CLOUDFLARE_TIME: Duration = Duration::from_secs(100);
/// The largest request that Cloudflare lets through without a contract, in bytes.
const CLOUDFLARE_BODY: u64 = 100_000_000;

/// Everything that is found. `slowest` is how long the slowest turn took just now.
pub(super) async fn findings(settings: &Settings, here: &Surroundings, slowest: Option<Duration>) -> Vec<Finding> {
    let mut settings = settings.clone();
    if settings.origin == Origin::Found {
        let looked = search::at_usual_ports(SEARCH_TIME).await;
        settings.upstreams =
            looked.into_iter().find(Looked::is_usable).map(|looked| looked.settings).into_iter().collect();
    }
    let mut findings = upstreams(&settings, here).await;
    findings.extend(front_time(settings.timeouts.turn, slowest));
    findings.extend(front_body(settings.limits.body));
    findings.extend(settings.warnings.iter().map(|warning| {
        let why = "Whoever reads it can use your model from wherever the phone can.";
        Finding::warning("secret-file", Trouble::new(&warning.seen, why, &warning.mend))
    }));
    findings
}

async fn upstreams(settings: &Settings, here: &Surroundings) -> Vec<Finding> {
    let mut findings = Vec::new();
    if settings.upstreams.is_empty() {
        let seen = "there is no configuration here, and no model server at the usual ports";
        let why = "What the adapter was started with can't be looked at: another configuration, or the demo.";
        return vec![Finding::note("upstream", Trouble::new(seen, why, "weir doctor --config FILE"))];
    }
    let Ok(catalog) = Catalog::new(settings) else {
        let seen = "no connection to a model server can be made with these settings";
        return vec![Finding::warning("upstream", Trouble::new(seen, "Every turn fails.", "weir check"))];
    };
    let mut unreachable = Vec::new();
    for (place, upstream) in catalog.upstreams().iter().enumerate() {
        let found = catalog.look(place).await;
        if matches!(found, Err(DiscoveryError::Broken(_))) {
            unreachable.push(&upstream.settings);
        }
        findings.push(judge_upstream(&upstream.settings, &found, here));
        findings.extend(judge_host(&upstream.settings, found.is_ok()));
        findings.extend(judge_context(&upstream.settings.name, place, &catalog.now()));
    }
    findings.extend(judge_proxies(here, &unreachable));
    findings
}

/// Whether a model server answers; in a container, whether that is why it does not.
fn judge_upstream(
    settings: &UpstreamSettings,
    found: &Result<Discovery, DiscoveryError>,
    here: &Surroundings,
) -> Finding {
    let UpstreamSettings { name, url, .. } = settings;
    let error = match found {
        Ok(discovery) => {
            let server = report::on_one_line(&report::server(discovery));
            return Finding::ok("upstream", format!("{name}: {server}, {} model(s)", discovery.models.len()));
        }
        Err(error) => error,
    };
    if here.in_container && is_loopback(url) && matches!(error, DiscoveryError::Broken(_)) {
        let seen = format!("{name}: nothing answers at {url}, and this is a container");
        let why = "In a container that address is the container itself, unless it is on the host's network. Every turn fails, and \
                   the phone says that your AI reported an error.";
        return Finding::warning("container", Trouble::new(seen, why, "network_mode: host"));
    }
    let (why, mend) = match error {
        DiscoveryError::Loading => {
            ("Turns wait for it, for as long as a turn may take.", "wait until it has loaded".to_owned())
        }
        DiscoveryError::Credentials(_) => {
            ("Every turn that needs it fails.", format!("upstream.{name}.api_key_file = \"FILE\""))
        }
        _ => {
            let why = "Every turn that needs it fails: the phone says that your AI reported an error.";
            (why, format!("start that server, or correct upstream.{name}.url"))
        }
    };
    Finding::warning("upstream", Trouble::new(format!("{name} at {url}: {error}"), why, mend))
}

/// An address that is taken for another one than is meant.
fn judge_host(settings: &UpstreamSettings, answers: bool) -> Option<Finding> {
    let UpstreamSettings { name, url, .. } = settings;
    let why = match url.host()? {
        Host::Domain("localhost") => {
            "It may be taken for the IPv6 address ::1, where most model servers don't listen, and in a container it is the \
             container itself. Turns then fail, now or after an update."
        }
        Host::Ipv6(address) if address.is_loopback() && !answers => {
            "Most model servers listen on 127.0.0.1 and not on the IPv6 address ::1. Every turn fails then."
        }
        _ => return None,
    };
    let mut plain = url.clone();
    plain.set_host(Some("127.0.0.1")).ok()?;
    let seen = format!("{name} is at {url}");
    let mend = format!("url = \"{}\"", plain.as_str().trim_end_matches('/'));
    let trouble = Trouble::new(seen, why, mend);
    Some(if answers { Finding::note("address", trouble) } else { Finding::warning("address", trouble) })
}

/// Whether a chat of some length fits. The model that is judged is the one that most turns go to: the first.
fn judge_context(name: &str, place: usize, snapshot: &Snapshot) -> Option<Finding> {
    let here = |candidate: &&Candidate| candidate.upstream == place && candidate.told;
    let (id, candidate) = snapshot
        .entries
        .iter()
        .find_map(|entry| entry.candidates.iter().find(here).map(|candidate| (&entry.id, candidate)))?;
    let finding = "context";
    let why = "A longer chat is refused: the phone says that it got too long.";
    let asked_for = format!("context = {CHOSEN_CONTEXT} below [upstream.{name}]");
    let Some(tokens) = candidate.context else {
        let seen =
            format!("{name} doesn't say how many tokens {id} has; Ollama's default of 4096 holds about 10 turns");
        let is_ollama = candidate.dialect == Dialect::Ollama;
        return is_ollama.then(|| Finding::warning(finding, Trouble::new(seen, why, asked_for)));
    };
    let seen = format!("{id} on {name}: {tokens} tokens, about {} turns", turns_in(tokens));
    if tokens >= SMALL_CONTEXT {
        return Some(Finding::ok(finding, seen));
    }
    if candidate.dialect == Dialect::Ollama && candidate.context_to_ask_for.is_some() {
        // Somebody chose it, or the model was trained for no more.
        let mend = format!("{asked_for}, or another model");
        return Some(Finding::note(finding, Trouble::new(seen, why, mend)));
    }
    let mend = match candidate.dialect {
        Dialect::Ollama => asked_for,
        Dialect::LlamaCpp => format!("llama-server -c {CHOSEN_CONTEXT} …"),
        Dialect::Vllm => format!("vllm serve --max-model-len {CHOSEN_CONTEXT} …"),
        Dialect::LmStudio => format!("lms load --context-length {CHOSEN_CONTEXT} …"),
        Dialect::OpenAi => format!("start the model server with a context of {CHOSEN_CONTEXT} tokens"),
    };
    Some(Finding::warning(finding, Trouble::new(seen, why, mend)))
}

/// Proxies, which Weir does not use and other programs do.
fn judge_proxies(here: &Surroundings, unreachable: &[&UpstreamSettings]) -> Option<Finding> {
    let names = here.proxies.join(", ");
    if names.is_empty() {
        return None;
    }
    let elsewhere = unreachable.iter().find(|settings| !is_loopback(&settings.url));
    if let Some(UpstreamSettings { name, url, .. }) = elsewhere {
        let seen = format!("{names} set here, and {name} does not answer");
        let why = format!("Weir uses no proxy: where only a proxy leads to {url}, every turn fails.");
        return Some(Finding::warning(
            "proxy",
            Trouble::new(seen, why, format!("upstream.{name}.url = \"http://…\", without a proxy")),
        ));
    }
    let seen = format!("{names} set here; Weir uses no proxy");
    Some(if here.is_excepted {
        Finding::ok("proxy", seen)
    } else {
        let why = "curl and other programs may send there what is for 127.0.0.1, and say that Weir doesn't answer.";
        Finding::note(
            "proxy",
            Trouble::new(seen, why, "export NO_PROXY=127.0.0.1,localhost no_proxy=127.0.0.1,localhost"),
        )
    })
}

/// Whether a front gives up before Weir does.
fn front_time(turn: Duration, slowest: Option<Duration>) -> Option<Finding> {
    let id = "front-time";
    let limit = report::time(turn);
    if turn < CLOUDFLARE_TIME {
        return Some(Finding::ok(id, format!("a turn ends after {limit}, before any front gives up")));
    }
    let why = "Cloudflare gives up after 100 s: the phone then says that your AI reported an error. Tailscale has no such limit.";
    let mend = "turn = \"95s\" below [timeouts], where Cloudflare is the front";
    Some(match slowest.filter(|slowest| *slowest >= CLOUDFLARE_TIME) {
        Some(slowest) => {
            Finding::warning(id, Trouble::new(format!("a turn took {} just now", report::time(slowest)), why, mend))
        }
        None => Finding::note(id, Trouble::new(format!("a turn may take {limit}"), why, mend)),
    })
}

/// Whether a front takes as large a request as Weir does.
fn front_body(body: u64) -> Option<Finding> {
    let id = "front-body";
    let seen = format!("a request may have {}", report::size(body));
    if body > CLOUDFLARE_BODY {
        let why = "Cloudflare takes no more than 100 MB: the phone says that an image is too large.";
        return Some(Finding::warning(id, Trouble::new(seen, why, "body = \"64MiB\" below [limits]")));
    }
    let why = "nginx takes 1 MiB if nothing else is set: the phone then says of a chat with pictures that an image is too large.";
    let mend = format!("client_max_body_size {}m;", body.div_ceil(1024 * 1024));
    Some(Finding::note(id, Trouble::new(seen, why, mend)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use crate::cli::doctor::finding::Verdict;
    use crate::upstream::broken::{Broken, Obstacle};

    const NOBODY: Result<Discovery, DiscoveryError> =
        Err(DiscoveryError::Broken(Broken::NotConnected(Obstacle::NobodyListens)));

    fn server(url: &str) -> UpstreamSettings {
        UpstreamSettings::new("local", url.parse().unwrap())
    }

    #[test]
    fn in_a_container_a_server_of_this_machine_that_is_not_there_may_be_the_hosts() {
        let container = Surroundings { in_container: true, ..Surroundings::default() };
        for (url, here, id) in [
            ("http://127.0.0.1:11434", &container, "container"),
            ("http://localhost:11434", &container, "container"),
            ("http://nas:11434", &container, "upstream"),
            ("http://127.0.0.1:11434", &Surroundings::default(), "upstream"),
        ] {
            let finding = judge_upstream(&server(url), &NOBODY, here);
            assert_eq!((finding.id, finding.verdict), (id, Verdict::Warning), "{url}");
        }
        let finding = judge_upstream(&server("http://127.0.0.1:1"), &Ok(Discovery::default()), &container);
        assert_eq!((finding.id, finding.verdict), ("upstream", Verdict::Ok));
    }

    #[test]
    fn a_proxy_matters_where_a_server_elsewhere_is_not_reached() {
        let here = Surroundings { proxies: vec!["HTTPS_PROXY"], ..Surroundings::default() };
        let verdict = |here: &Surroundings, unreachable: &[&UpstreamSettings]| {
            judge_proxies(here, unreachable).map(|finding| finding.verdict)
        };
        assert_eq!(verdict(&here, &[&server("https://models.example")]), Some(Verdict::Warning));
        assert_eq!(verdict(&here, &[&server("http://127.0.0.1:11434")]), Some(Verdict::Note));
        assert_eq!(verdict(&Surroundings { is_excepted: true, ..here }, &[]), Some(Verdict::Ok));
        assert_eq!(verdict(&Surroundings::default(), &[]), None);
    }

    #[test]
    fn an_address_that_may_mean_another_one_is_said_with_the_plain_one() {
        let mend = |url: &str, answers: bool| {
            judge_host(&server(url), answers).map(|finding| (finding.verdict, finding.mend.unwrap()))
        };
        let plain = "url = \"http://127.0.0.1:11434\"".to_owned();
        assert_eq!(mend("http://localhost:11434", true), Some((Verdict::Note, plain.clone())));
        assert_eq!(mend("http://localhost:11434", false), Some((Verdict::Warning, plain.clone())));
        assert_eq!(mend("http://[::1]:11434", false), Some((Verdict::Warning, plain)));
        assert_eq!(mend("http://[::1]:11434", true), None);
        assert_eq!(mend("http://127.0.0.1:11434", false), None);
        assert_eq!(mend("http://nas:11434", false), None);
    }

    #[test]
    fn a_turn_that_took_longer_than_a_front_waits_is_a_warning() {
        let verdict = |turn: u64, slowest: u64| {
            front_time(Duration::from_secs(turn), Some(Duration::from_secs(slowest))).unwrap().verdict
        };
        assert_eq!(verdict(95, 50), Verdict::Ok);
        assert_eq!(verdict(285, 50), Verdict::Note);
        assert_eq!(verdict(285, 101), Verdict::Warning);
    }
}
