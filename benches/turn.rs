//! What a turn costs inside Weir, without any connection: `cargo bench --bench turn`.
#![allow(missing_docs)]
#![allow(clippy::unwrap_used)]

mod fixtures;

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use fixtures::{InPieces, collapse_answer, ollama_stream, parse_and_encode, photo_turn, text_turn, vllm_stream};
use weir::upstream::classify::Classifier;
use weir::upstream::dialect::Dialect;

/// Chunks of a long answer.
const CHUNKS: usize = 10_000;

/// The phone's request in, the model server's request out. `utf8` is one `std::str::from_utf8` over the same bytes: what it costs to
/// look at them at all.
fn parse_and_encode_turns(criterion: &mut Criterion) {
    let turns = [
        ("text_4.4KB", text_turn()),
        ("photo_1MB", photo_turn(1_000_000)),
        ("photo_50MiB", photo_turn(50 * 1024 * 1024)),
    ];
    let mut group = criterion.benchmark_group("parse_and_encode");
    for (name, body) in &turns {
        group.throughput(Throughput::Bytes(body.len() as u64));
        if body.len() > 10_000_000 {
            group.sample_size(10);
        }
        group.bench_function(format!("{name}/openai"), |bencher| {
            bencher.iter(|| parse_and_encode(black_box(body), Dialect::OpenAi));
        });
        group.bench_function(format!("{name}/ollama"), |bencher| {
            bencher.iter(|| parse_and_encode(black_box(body), Dialect::Ollama));
        });
        group.bench_function(format!("{name}/utf8"), |bencher| {
            bencher.iter(|| std::str::from_utf8(black_box(body)).is_ok());
        });
    }
    group.finish();
}

/// A long streamed answer in pieces of 16 KiB, collapsed to its text; criterion's elements are chunks.
fn collapse_answers(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let classifier = Classifier::embedded();
    let answers = [
        ("vllm_events", Dialect::Vllm, InPieces::of(&vllm_stream(CHUNKS))),
        ("ollama_lines", Dialect::Ollama, InPieces::of(&ollama_stream(CHUNKS))),
    ];
    let mut group = criterion.benchmark_group("collapse");
    group.throughput(Throughput::Elements(CHUNKS as u64));
    for (name, dialect, answer) in answers {
        group.bench_function(name, |bencher| {
            let collapse = |answer| runtime.block_on(collapse_answer(answer, dialect, &classifier));
            bencher.iter_batched(|| answer.clone(), collapse, BatchSize::LargeInput);
        });
    }
    group.finish();
}

/// What a refusal means: one that a row knows, one nested in a string, and one that no row knows, which is held against them all.
fn classify_refusals(criterion: &mut Criterion) {
    let classifier = Classifier::embedded();
    let refusals: [(&str, u16, &str); 3] = [
        (
            "context_llamacpp",
            400,
            r#"{"error":{"code":400,"message":"the request exceeds the available context size, try increasing it","type":"exceed_context_size_error","n_prompt_tokens":8700,"n_ctx":4096}}"#,
        ),
        (
            "context_nested_ollama",
            400,
            r#"{"error":"{\"error\":{\"code\":400,\"message\":\"request (8700 tokens) exceeds the available context size (4096 tokens), try increasing it\",\"type\":\"exceed_context_size_error\"}}"}"#,
        ),
        (
            "unknown",
            500,
            r#"{"error":{"code":500,"message":"the tensor of layer 7 is sad today","type":"server_error"}}"#,
        ),
    ];
    let mut group = criterion.benchmark_group("classify");
    for (name, status, body) in refusals {
        group.bench_function(name, |bencher| {
            bencher.iter(|| classifier.classify(black_box(status), black_box(body.as_bytes())));
        });
    }
    group.finish();
}

criterion_group!(turn, parse_and_encode_turns, collapse_answers, classify_refusals);
criterion_main!(turn);
