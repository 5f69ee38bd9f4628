//! Writes the first corpus of every target: `cargo run --example seeds`. It is made of the recordings and cases under
//! `tests/fixtures`, and of the few files in `seeds/` for what no server records.

use std::path::{Path, PathBuf};
use std::{fs, io};

use serde_json::Value;
use weir_fuzz::{classifier_input, data_uri_input};

fn main() -> io::Result<()> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut corpus = Corpus { folder: here.join("corpus"), written: 0 };
    for seed in files(&here.join("seeds/request"))? {
        corpus.add("request", &fs::read(seed)?)?;
    }
    for seed in files(&here.join("seeds/data_uri"))? {
        corpus.add("data_uri", &data_uri_input(&fs::read(seed)?))?;
    }
    for seed in files(&here.join("seeds/answers"))? {
        corpus.add_answer(200, &fs::read(seed)?)?;
    }
    for file in files(&here.join("../tests/fixtures"))? {
        let text = fs::read_to_string(&file)?;
        match file.extension().and_then(|extension| extension.to_str()) {
            // Cases, one a line: an answer with its status, or a wording.
            Some("jsonl") => text.lines().try_for_each(|case| add_case(&mut corpus, case))?,
            Some("json" | "ndjson" | "txt") => corpus.add_answer(200, text.as_bytes())?,
            _ => {}
        }
    }
    println!("{} seeds in {}", corpus.written, corpus.folder.display());
    Ok(())
}

fn add_case(corpus: &mut Corpus, case: &str) -> io::Result<()> {
    let case: Value = serde_json::from_str(case)?;
    let status = case["status"].as_u64().and_then(|status| u16::try_from(status).ok()).unwrap_or(200);
    corpus.add_answer(status, case["body"].as_str().unwrap_or_default().as_bytes())
}

struct Corpus {
    folder: PathBuf,
    written: usize,
}

impl Corpus {
    /// An answer is a seed of every target that reads answers: a stream may end in what is a refusal elsewhere.
    fn add_answer(&mut self, status: u16, body: &[u8]) -> io::Result<()> {
        self.add("sse", body)?;
        self.add("ndjson", body)?;
        self.add("classifier", &classifier_input(status, body))
    }

    fn add(&mut self, target: &str, input: &[u8]) -> io::Result<()> {
        let folder = self.folder.join(target);
        fs::create_dir_all(&folder)?;
        fs::write(folder.join(format!("seed-{:04}", self.written)), input)?;
        self.written += 1;
        Ok(())
    }
}

/// All files under a folder, in order.
fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files(&path)?);
        } else {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}
