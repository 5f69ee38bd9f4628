//! Tokens that Weir makes: 32 random bytes as 64 hexadecimal digits (contract, "Authentication").

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use aws_lc_rs::rand;
use secrecy::{ExposeSecret as _, SecretString};

use super::CommandError;
use super::screen::tell;
use crate::settings::configuration_folder;

/// `weir token`: prints a new token, or writes it to a new file.
pub(super) fn run(output: Option<&Path>) -> Result<(), CommandError> {
    match output {
        Some(path) => {
            create_file(path).map_err(|error| not_created(path, &error))?;
            eprintln!("a new token is in {}", path.display());
        }
        None => tell!("{}", new_token().map_err(no_randomness)?.expose_secret()),
    }
    Ok(())
}

/// Where the token of an adapter without configuration stands, whether it is there or not.
pub(super) fn own_path() -> Result<PathBuf, CommandError> {
    let folder = configuration_folder().ok_or_else(|| {
        CommandError::Failed(
            "there is no configuration folder to keep a token in: HOME is not set. Set ADAPTER_TOKEN, or HOME"
                .to_owned(),
        )
    })?;
    Ok(folder.join("adapter.token"))
}

/// The token file of a start without configuration; made if it is not there yet. It is never printed.
pub(super) fn own_file() -> Result<PathBuf, CommandError> {
    let path = own_path()?;
    if make_or_keep(&path)? {
        eprintln!("weir: made a token for the app; it stands in {}", path.display());
    }
    Ok(path)
}

/// Makes a token file, and the folder for it, unless there is one already, which is kept as it is. Tells whether it was made.
pub(super) fn make_or_keep(path: &Path) -> Result<bool, CommandError> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let made = folder.map_or(Ok(()), std::fs::create_dir_all).and_then(|()| create_file(path));
    match made {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(not_created(path, &error)),
    }
}

/// Writes a new token to a file that must not exist yet, readable by its owner alone whatever the umask.
fn create_file(path: &Path) -> io::Result<()> {
    let token = new_token()?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(token.expose_secret().as_bytes())?;
    file.write_all(b"\n")?;
    file.sync_all()
}

fn new_token() -> io::Result<SecretString> {
    let mut bytes = [0; 32];
    rand::fill(&mut bytes).map_err(|_| io::Error::other("no randomness"))?;
    let mut digits = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        let _ = write!(digits, "{byte:02x}");
    }
    Ok(SecretString::from(digits))
}

fn not_created(path: &Path, error: &io::Error) -> CommandError {
    let mend = match error.kind() {
        io::ErrorKind::AlreadyExists => {
            "it exists already, and an existing token is never overwritten; choose another name"
        }
        io::ErrorKind::NotFound => "its folder does not exist; make it first",
        io::ErrorKind::PermissionDenied => "its folder may not be written to",
        _ => "it could not be written",
    };
    CommandError::Failed(format!("the token file {} was not made: {mend}", path.display()))
}

fn no_randomness(_: io::Error) -> CommandError {
    CommandError::Failed("the system gave no random bytes for a token".to_owned())
}
