//! Resident memory: idle, with photo turns in flight, and after them.

use std::net::SocketAddr;
use std::time::Duration;

use super::Build;
use super::client::{Connection, request};
use super::fixtures::{MODEL, photo_turn, text_turn};
use super::servers::Weir;
use super::slow_upstream;
use super::table::{Figure, Table, Target};

const MIB: f64 = 1024.0 * 1024.0;

/// The body of a photo turn.
const BODY: usize = 50 * 1024 * 1024;

const AT_ONCE: usize = 8;

/// When what a turn left behind must be gone.
const LATER: Duration = Duration::from_secs(10);

struct Measured {
    idle: f64,
    /// The rest are above idle.
    one: f64,
    after_one: f64,
    several: f64,
    after_several: f64,
}

/// Measures each build in a process of its own.
pub fn measure(builds: &[Build], table: &mut Table) {
    let photo = request(&photo_turn(BODY));
    let measured: Vec<Measured> = builds.iter().map(|build| measure_one(build, &photo)).collect();
    let mut row = |what: &str, unit, target, figure: &dyn Fn(&Measured) -> (f64, f64)| {
        let figures = measured.iter().map(|measured| {
            let (value, bytes) = figure(measured);
            let note = if unit == "×" { format!("{:.1} MiB", bytes / MIB) } else { String::new() };
            Some(Figure { value, note })
        });
        table.row(what, unit, target, figures.collect());
    };
    let body = BODY as f64;
    let several = body * AT_ONCE as f64;
    row("resident, idle, after a text turn and 10 s", "MiB", Target::AtMost(10.0), &|m| (m.idle / MIB, m.idle));
    row("peak above idle, a 50 MiB photo turn in flight, beside its body", "×", Target::AtMost(1.25), &|m| {
        (m.one / body, m.one)
    });
    row("above idle 10 s later", "MiB", Target::AtMost(4.0), &|m| (m.after_one / MIB, m.after_one));
    row("peak above idle, eight at once, beside their bodies", "×", Target::AtMost(1.25), &|m| {
        (m.several / several, m.several)
    });
    row("above idle 10 s later", "MiB", Target::AtMost(4.0), &|m| (m.after_several / MIB, m.after_several));
}

fn measure_one(build: &Build, photo: &[u8]) -> Measured {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let settings = format!(
        "concurrency = {AT_ONCE}\n[limits]\nin_flight = \"1GiB\"\n[models.override.\"{MODEL}\"]\nimages = true"
    );
    let upstream = slow_upstream::start();
    let weir = Weir::start(&build.program, folder.path(), "weir", upstream, &settings);
    turns(weir.address, &request(&text_turn()), 1);
    std::thread::sleep(LATER);
    let idle = weir.process.memory("VmRSS");
    let in_flight = |count| {
        turns(weir.address, photo, count);
        let peak = weir.process.memory("VmHWM") - idle;
        std::thread::sleep(LATER);
        (peak, weir.process.memory("VmRSS") - idle)
    };
    let (one, after_one) = in_flight(1);
    let (several, after_several) = in_flight(AT_ONCE);
    Measured { idle, one, after_one, several, after_several }
}

/// So many turns at once, each on a connection of its own that ends with it.
fn turns(address: SocketAddr, request: &[u8], count: usize) {
    std::thread::scope(|scope| {
        for _ in 0..count {
            scope.spawn(|| Connection::to(address).ask(request).len());
        }
    });
}
