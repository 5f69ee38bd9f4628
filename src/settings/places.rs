//! Where each key stands, for what is found out about its value later.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;

use super::refusal::Fault;
use super::schema;

/// Where each key stands: its line in the configuration file, or its variable.
#[derive(Debug, Clone, Default)]
pub struct Places {
    /// The configuration file, if there is one.
    pub(super) file: Option<PathBuf>,
    /// The line of each key and each table in the file, from 1.
    pub(super) lines: HashMap<Vec<String>, usize>,
    /// The names of the variables that set a key.
    pub(super) variables: BTreeSet<String>,
}

impl Places {
    /// Where this key stands; where it would have to, if it stands nowhere.
    pub fn of<S: AsRef<str>>(&self, path: &[S]) -> String {
        let variable = schema::variable(path);
        if self.variables.contains(&variable) {
            return format!("environment, {variable}");
        }
        let Some(file) = &self.file else {
            return "environment".to_owned();
        };
        let path: Vec<String> = path.iter().map(|part| part.as_ref().to_owned()).collect();
        match self.lines.get(&path) {
            Some(line) => format!("{}, line {line}", file.display()),
            None => file.display().to_string(),
        }
    }

    /// What is wrong with the value of this key.
    pub fn fault<S: AsRef<str>>(&self, path: &[S], found: String, accepted: String, mend: String) -> Fault {
        Fault { place: self.of(path), key: schema::written(path), found, accepted, mend }
    }

    /// Whether this key stands in the file or in the environment.
    pub fn names<S: AsRef<str>>(&self, path: &[S]) -> bool {
        let written: Vec<String> = path.iter().map(|part| part.as_ref().to_owned()).collect();
        self.lines.contains_key(&written) || self.variables.contains(&schema::variable(path))
    }
}
