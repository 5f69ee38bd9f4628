//! What is measured without connections, in this process: the library of this checkout. `benches/turn.rs` has more of it.

use std::hint::black_box;
use std::time::Instant;

use weir::upstream::classify::Classifier;
use weir::upstream::dialect::Dialect;

use super::fixtures::{InPieces, collapse_answer, ollama_stream, parse_and_encode, photo_turn, vllm_stream};
use super::table::{Figure, Table, Target, median};

const ROUNDS: usize = 15;
const CHUNKS: usize = 10_000;

/// Measures the two pieces of a turn that cost in proportion to its size.
pub fn measure(table: &mut Table) {
    let classifier = Classifier::embedded();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    for (name, dialect, answer, target) in [
        ("vLLM's events", Dialect::Vllm, InPieces::of(&vllm_stream(CHUNKS)), Target::AtLeast(300_000.0)),
        ("Ollama's lines", Dialect::Ollama, InPieces::of(&ollama_stream(CHUNKS)), Target::None),
    ] {
        let a_second = (0..ROUNDS).map(|_| {
            let answer = answer.clone();
            CHUNKS as f64 / seconds(|| runtime.block_on(collapse_answer(answer, dialect, &classifier)))
        });
        let figure = Figure { value: median(a_second.collect()), note: String::new() };
        table.row(
            &format!("chunks collapsed a second, {name}, in 16 KiB pieces, one core"),
            "/s",
            target,
            vec![Some(figure)],
        );
    }
    let photo = photo_turn(50 * 1024 * 1024);
    let (mut looks, mut turns) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        looks.push(seconds(|| std::str::from_utf8(black_box(&photo)).is_ok()));
        turns.push(seconds(|| parse_and_encode(black_box(&photo), Dialect::Vllm)));
    }
    let ratios = turns.iter().zip(&looks).map(|(turn, look)| turn / look).collect();
    let note = format!("{:.1} ms, from_utf8 {:.1} ms", median(turns) * 1000.0, median(looks) * 1000.0);
    let figure = Figure { value: median(ratios), note };
    let what = "parse and encode of a 50 MiB photo turn, beside one std::str::from_utf8";
    table.row(what, "×", Target::AtMost(3.0), vec![Some(figure)]);
}

fn seconds<T>(work: impl FnOnce() -> T) -> f64 {
    let since = Instant::now();
    let result = black_box(work());
    let took = since.elapsed().as_secs_f64();
    drop(result);
    took
}
