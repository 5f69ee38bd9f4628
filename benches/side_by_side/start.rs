//! Sizes, and how long Weir takes to listen.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use super::Build;
use super::process::Process;
use super::servers::{Weir, first_line};
use super::slow_upstream;
use super::table::{Figure, Table, Target, median};

const STARTS: usize = 30;
const MIB: f64 = 1024.0 * 1024.0;

/// Measures each build; the starts of all take turns.
pub fn measure(builds: &[Build], image: &str, table: &mut Table) {
    let size = |build: &Build| {
        let bytes = std::fs::metadata(&build.program).expect("the program is there").len();
        Some(Figure { value: bytes as f64 / MIB, note: String::new() })
    };
    table.row("the program, stripped", "MiB", Target::AtMost(10.0), builds.iter().map(size).collect());
    let figure = || Some(Figure { value: image_size(image)?, note: String::new() });
    table.row("the container image", "MiB", Target::AtMost(25.0), vec![figure()]);
    // Bound and not listening: it refuses connections, and nobody else can take it meanwhile.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    let _inside = runtime.enter();
    let away = tokio::net::TcpSocket::new_v4().unwrap();
    away.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    for (state, upstream) in [("up", slow_upstream::start()), ("down", away.local_addr().unwrap())] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = Weir::configure(folder.path(), upstream, "");
        let mut times = vec![Vec::new(); builds.len()];
        for _ in 0..STARTS {
            for (build, times) in builds.iter().zip(&mut times) {
                times.push(time_to_listen(&build.program, &file, folder.path()));
            }
        }
        let figures =
            times.into_iter().map(|times| Some(Figure { value: median(times), note: String::new() })).collect();
        table.row(
            &format!("from exec to listening, upstream {state}, median of {STARTS}"),
            "ms",
            Target::AtMost(50.0),
            figures,
        );
    }
}

/// Milliseconds.
fn time_to_listen(program: &Path, file: &Path, folder: &Path) -> f64 {
    let since = Instant::now();
    let mut process = Process::start(&mut Weir::command(program, file), &folder.join("log"));
    let line = first_line(&mut process);
    let took = since.elapsed();
    assert!(line.starts_with("listening"), "Weir does not listen");
    took.as_secs_f64() * 1000.0
}

/// MiB, if there is Docker and the image.
fn image_size(image: &str) -> Option<f64> {
    let looked = Command::new("docker").args(["image", "inspect", "--format", "{{.Size}}", image]).output().ok()?;
    let bytes = String::from_utf8(looked.stdout).ok()?.trim().parse::<f64>().ok()?;
    Some(bytes / MIB)
}
