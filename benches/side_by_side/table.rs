//! The table that is printed at the end.

/// What a figure is held to.
#[derive(Debug, Clone, Copy)]
pub enum Target {
    /// It is only shown.
    None,
    AtMost(f64),
    AtLeast(f64),
}

/// A figure, and what it was made from, in words.
#[derive(Debug)]
pub struct Figure {
    pub value: f64,
    pub note: String,
}

#[derive(Debug)]
struct Row {
    what: String,
    unit: &'static str,
    target: Target,
    figures: Vec<Option<Figure>>,
}

/// Rows with a figure for each build.
#[derive(Debug)]
pub struct Table {
    builds: Vec<String>,
    rows: Vec<Row>,
    /// What stands under the table.
    remarks: Vec<String>,
}

impl Table {
    /// A table for these builds.
    pub fn new(builds: impl Iterator<Item = String>) -> Self {
        Table { builds: builds.collect(), rows: Vec::new(), remarks: Vec::new() }
    }

    /// Adds a row with a figure for each build, in their order; `None` where there is none, or nothing for the last ones.
    pub fn row(&mut self, what: &str, unit: &'static str, target: Target, mut figures: Vec<Option<Figure>>) {
        figures.resize_with(self.builds.len(), || None);
        self.rows.push(Row { what: what.to_owned(), unit, target, figures });
    }

    /// Adds a line under the table.
    pub fn remark(&mut self, remark: String) {
        self.remarks.push(remark);
    }

    /// Prints it as Markdown, and how many targets were met.
    pub fn print(&self) {
        println!("\n{}\n", machine());
        println!("| what | target | {} |", self.builds.join(" | "));
        println!("|---|---|{}", "---|".repeat(self.builds.len()));
        let (mut met, mut held) = (0, 0);
        for row in &self.rows {
            let target = match row.target {
                Target::None => String::new(),
                Target::AtMost(most) => format!("≤ {}", number(most, row.unit)),
                Target::AtLeast(least) => format!("≥ {}", number(least, row.unit)),
            };
            let cells = row.figures.iter().map(|figure| {
                let Some(figure) = figure else { return "not measured".to_owned() };
                let verdict = match row.target {
                    Target::None => None,
                    Target::AtMost(most) => Some(figure.value <= most),
                    Target::AtLeast(least) => Some(figure.value >= least),
                };
                met += usize::from(verdict == Some(true));
                held += usize::from(verdict.is_some());
                let verdict = match verdict {
                    None => "",
                    Some(true) => " ok",
                    Some(false) => " **missed**",
                };
                let note = if figure.note.is_empty() { String::new() } else { format!(" ({})", figure.note) };
                format!("{}{verdict}{note}", number(figure.value, row.unit))
            });
            let cells: Vec<String> = cells.collect();
            println!("| {} | {target} | {} |", row.what, cells.join(" | "));
        }
        println!();
        for remark in &self.remarks {
            println!("{remark}");
        }
        println!("{met} of {held} targets are met.");
    }
}

fn number(value: f64, unit: &str) -> String {
    match unit {
        "×" => format!("{value:.2}×"),
        _ if value >= 1000.0 => format!("{value:.0} {unit}"),
        _ => format!("{value:.1} {unit}"),
    }
}

fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let processor = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = processor.lines().find_map(|line| line.strip_prefix("model name")?.split(':').nth(1));
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or_default();
    format!("{cores} cores ({}), load average at the end {load}", model.unwrap_or("unknown").trim())
}

/// The middle one.
pub fn median(mut values: Vec<f64>) -> f64 {
    assert!(!values.is_empty(), "nothing was measured");
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
