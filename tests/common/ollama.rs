//! The scripted model server as an Ollama, with the answers that a real one gave (`tests/fixtures/ollama`).
use super::recorded::Recorded;
use super::script::{Script, Step, http_answer};
use super::upstream::ScriptedUpstream;
use serde_json::{Value, json};

/// The content type of its streams.
pub const NDJSON: &str = "application/x-ndjson";

/// A file of `tests/fixtures/ollama`.
pub fn ollama_fixture(name: &str) -> String {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/ollama");
    std::fs::read_to_string(folder.join(name)).unwrap()
}

/// The same as JSON.
pub fn ollama_json(name: &str) -> Value {
    serde_json::from_str(&ollama_fixture(name)).unwrap()
}

/// A stream as it stands in a file.
pub fn ollama_stream(name: &str) -> Script {
    Script::body(200, NDJSON, ollama_fixture(name).as_bytes())
}

/// A whole answer with this text.
pub fn ollama_answer(text: &str) -> Script {
    let line = |text: &str, done: bool| {
        let mut line = json!({"model": "m", "created_at": "2026-11-30T15:16:40Z",
                              "message": {"role": "assistant", "content": text}, "done": done});
        if done {
            line["done_reason"] = json!("stop");
            line["prompt_eval_count"] = json!(40);
            line["eval_count"] = json!(2);
        }
        format!("{line}\n")
    };
    Script::body(200, NDJSON, format!("{}{}", line(text, false), line("", true)).as_bytes())
}

fn show(request: &Recorded) -> Vec<Step> {
    let (status, answer) = match request.json()["model"].as_str() {
        Some("tiny-chat:latest") => (200, ollama_fixture("show_chat.json")),
        Some("tiny-vision:latest") => (200, ollama_fixture("show_vision.json")),
        other => (404, json!({"error": format!("model '{}' not found", other.unwrap_or_default())}).to_string()),
    };
    vec![Step::Send(http_answer(status, "application/json; charset=utf-8", answer.as_bytes()))]
}

impl ScriptedUpstream {
    /// As an Ollama with `tiny-chat`, `tiny-vision`, one model that only embeds and a remote one.
    pub fn ollama() -> Self {
        let upstream = Self::start();
        upstream.be_ollama();
        upstream
    }

    /// From now on it is such an Ollama.
    pub fn be_ollama(&self) {
        let ids = ["tiny-chat:latest", "tiny-vision:latest", "vectors:335m", "far-away:480b-cloud"];
        self.set_models(Script::json(200, &super::upstream::models_answer(&ids, "library")));
        self.set_route("/", Script::body(200, "text/plain; charset=utf-8", ollama_fixture("root.txt").as_bytes()));
        for (path, file) in [("/api/version", "version.json"), ("/api/tags", "tags.json"), ("/api/ps", "ps.json")] {
            self.set_route(path, Script::json(200, &ollama_json(file)));
        }
        self.set_route("/api/show", Script::from_fn(show));
        self.always(ollama_answer(super::REPLY));
    }
}
