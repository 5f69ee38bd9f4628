//! Where the configuration file is looked for.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::refusal::{Fault, SettingsError};

/// The name of the configuration file, wherever it is looked for.
const FILE_NAME: &str = "adapter.toml";

/// Where the settings are read from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// This file.
    File(PathBuf),
    /// No file: the environment and the defaults alone.
    Nothing,
}

/// Finds the configuration file: the one that was asked for, else `./adapter.toml`, else `adapter.toml` in
/// [`configuration_folder`].
///
/// # Errors
/// Only if a file was asked for and isn't there: to go on with another one would surprise.
pub fn find(explicit: Option<&Path>) -> Result<Source, SettingsError> {
    find_among(explicit, Path::new(""), configuration_folder().as_deref())
}

/// The folder of this user's Weir: `$XDG_CONFIG_HOME/weir`, else `~/.config/weir`; `None` without a home.
pub fn configuration_folder() -> Option<PathBuf> {
    folder_from(std::env::var_os("XDG_CONFIG_HOME"), std::env::var_os("HOME"))
}

/// The base directory specification says that a relative `XDG_CONFIG_HOME` doesn't count.
fn folder_from(config_home: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    config_home
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .or_else(|| home.map(PathBuf::from).filter(|path| path.is_absolute()).map(|path| path.join(".config")))
        .map(|path| path.join("weir"))
}

fn find_among(explicit: Option<&Path>, here: &Path, folder: Option<&Path>) -> Result<Source, SettingsError> {
    // A file that is there but can't be looked at is taken, so that reading it says what is wrong.
    let is_there = |path: &Path| path.try_exists().unwrap_or(true);
    if let Some(path) = explicit {
        if is_there(path) {
            return Ok(Source::File(path.to_owned()));
        }
        return Err(Fault {
            place: path.display().to_string(),
            key: "--config".to_owned(),
            found: "no file there".to_owned(),
            accepted: "the path of a configuration file".to_owned(),
            mend: "Correct the path, or copy adapter.toml.example to it.".to_owned(),
        }
        .into());
    }
    let places = [Some(here), folder];
    Ok(places
        .into_iter()
        .flatten()
        .map(|place| place.join(FILE_NAME))
        .find(|path| is_there(path))
        .map_or(Source::Nothing, Source::File))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn the_file_here_comes_before_the_one_in_the_users_folder() {
        let here = tempfile::tempdir().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let look = || find_among(None, here.path(), Some(folder.path())).unwrap();
        assert_eq!(look(), Source::Nothing);
        let in_folder = folder.path().join(FILE_NAME);
        std::fs::write(&in_folder, "").unwrap();
        assert_eq!(look(), Source::File(in_folder));
        let in_here = here.path().join(FILE_NAME);
        std::fs::write(&in_here, "").unwrap();
        assert_eq!(look(), Source::File(in_here));
    }

    #[test]
    fn without_any_folder_there_is_nothing() {
        let here = tempfile::tempdir().unwrap();
        assert_eq!(find_among(None, here.path(), None).unwrap(), Source::Nothing);
    }

    #[test]
    fn the_users_folder_follows_the_base_directory_specification() {
        let folder =
            |config: Option<&str>, home: Option<&str>| folder_from(config.map(Into::into), home.map(Into::into));
        assert_eq!(folder(Some("/c"), Some("/h")), Some("/c/weir".into()));
        assert_eq!(folder(Some("relative"), Some("/h")), Some("/h/.config/weir".into()));
        assert_eq!(folder(Some(""), Some("/h")), Some("/h/.config/weir".into()));
        assert_eq!(folder(None, None), None);
    }
}
