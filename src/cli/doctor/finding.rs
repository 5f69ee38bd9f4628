//! What the doctor found: one finding at a time on the screen, or all of them as one JSON document.

use serde::Serialize;
use serde_json::json;

use crate::cli::screen::{BAD, CAUTION, GOOD, QUIET, STRONG, WIDTH, say, tell};

/// How wide the names of the findings are, in columns.
const NAMES: usize = 22;

/// What a finding comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    /// As it should be.
    Ok,
    /// Good to know; nothing is wrong.
    Note,
    /// It works, and may bite.
    Warning,
    /// It breaks the contract, or a turn.
    Failed,
    /// Not looked at, because of another finding.
    Skipped,
}

/// One finding.
#[derive(Debug, Serialize)]
pub(super) struct Finding {
    /// Its name, which stays the same: scripts go by it.
    pub(super) id: &'static str,
    pub(super) verdict: Verdict,
    /// What was seen. Nothing of a token, a message or a reply.
    pub(super) seen: String,
    /// Why that matters on the phone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) why: Option<String>,
    /// The command or the line that mends it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) mend: Option<String>,
}

impl Finding {
    pub(super) fn ok(id: &'static str, seen: impl Into<String>) -> Self {
        Self { id, verdict: Verdict::Ok, seen: seen.into(), why: None, mend: None }
    }

    pub(super) fn skipped(id: &'static str, seen: impl Into<String>) -> Self {
        Self { id, verdict: Verdict::Skipped, seen: seen.into(), why: None, mend: None }
    }

    pub(super) fn note(id: &'static str, trouble: Trouble) -> Self {
        Self::with(id, Verdict::Note, trouble)
    }

    pub(super) fn warning(id: &'static str, trouble: Trouble) -> Self {
        Self::with(id, Verdict::Warning, trouble)
    }

    pub(super) fn failed(id: &'static str, trouble: Trouble) -> Self {
        Self::with(id, Verdict::Failed, trouble)
    }

    fn with(id: &'static str, verdict: Verdict, trouble: Trouble) -> Self {
        let Trouble { seen, why, mend } = trouble;
        Self { id, verdict, seen, why: Some(why), mend: Some(mend) }
    }
}

/// What is wrong: the three things that every finding but a good one says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Trouble {
    pub(super) seen: String,
    pub(super) why: String,
    pub(super) mend: String,
}

impl Trouble {
    pub(super) fn new(seen: impl Into<String>, why: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { seen: seen.into(), why: why.into(), mend: mend.into() }
    }
}

/// All findings, shown as they come.
#[derive(Debug)]
pub(super) struct Report {
    json: bool,
    findings: Vec<Finding>,
}

impl Report {
    pub(super) fn new(json: bool) -> Self {
        Self { json, findings: Vec::new() }
    }

    /// A heading for what follows.
    pub(super) fn heading(&self, text: &str) {
        if !self.json {
            tell!("\n{STRONG}{text}{STRONG:#}");
        }
    }

    pub(super) fn add(&mut self, finding: Finding) {
        if !self.json {
            show(&finding);
        }
        self.findings.push(finding);
    }

    pub(super) fn add_all(&mut self, findings: impl IntoIterator<Item = Finding>) {
        findings.into_iter().for_each(|finding| self.add(finding));
    }

    /// How many findings came to this.
    pub(super) fn count(&self, verdict: Verdict) -> usize {
        self.findings.iter().filter(|finding| finding.verdict == verdict).count()
    }

    /// The end: the sum on the screen, or the whole document.
    pub(super) fn finish(&self, adapter: &str, deep: bool) {
        let [good, failed, warnings, skipped] =
            [Verdict::Ok, Verdict::Failed, Verdict::Warning, Verdict::Skipped].map(|verdict| self.count(verdict));
        if self.json {
            let document = json!({
                "schema": 1,
                "weir": env!("CARGO_PKG_VERSION"),
                "adapter": adapter,
                "deep": deep,
                "passed": failed == 0,
                "findings": self.findings,
            });
            tell!("{document:#}");
            return;
        }
        let colour = if failed > 0 { BAD } else { GOOD };
        let word = if failed > 0 { "not well" } else { "well" };
        let skipped = if skipped > 0 { format!(", {skipped} not looked at") } else { String::new() };
        tell!("\n{colour}{word}{colour:#}: {good} good, {failed} failed, {warnings} warning(s){skipped}");
    }
}

fn show(finding: &Finding) {
    let (colour, word) = match finding.verdict {
        Verdict::Ok => (GOOD, "ok"),
        Verdict::Note => (QUIET, "note"),
        Verdict::Warning => (CAUTION, "warn"),
        Verdict::Failed => (BAD, "FAIL"),
        Verdict::Skipped => (QUIET, "skip"),
    };
    let margin = " ".repeat(8);
    let indent = margin.len() + NAMES;
    let first = format!("  {colour}{word:4}{colour:#}  {:NAMES$}", finding.id);
    // What is not torn, such as the id of a model, may be wider than what is left beside the name.
    if finding.seen.split(' ').all(|word| word.chars().count() <= WIDTH - indent) {
        say(&first, indent, &finding.seen);
    } else {
        tell!("{}", first.trim_end());
        say(&margin, margin.len(), &finding.seen);
    }
    if let Some(why) = &finding.why {
        say(&margin, 8, why);
    }
    if let Some(mend) = &finding.mend {
        tell!("{margin}Mend: {STRONG}{mend}{STRONG:#}");
    }
}
