//! Files whose content must not be shown: tokens, keys, and certificates that may have a key beside them.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use secrecy::{ExposeSecret, SecretSlice};

use super::Warning;
use super::refusal::SettingsError;
use super::value::Found;

/// Far more than any token, key or bundle of certificates takes; a device or a log named by mistake ends here.
const LARGEST: u64 = 4 * 1024 * 1024;

/// Reads the whole file that a key names. `accepted` says what should be in it, `to_make` how a file comes about that isn't there.
pub(super) fn read(
    found: &Found,
    path: &Path,
    accepted: &str,
    to_make: &str,
) -> Result<SecretSlice<u8>, SettingsError> {
    let refuse = |what: &str, mend: &str| {
        found.refuse(
            format!("{what} {}", shown(found, path)),
            format!("the path of a readable file with {accepted}"),
            mend,
        )
    };
    let failed = |error: std::io::Error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => refuse(
            "no file at",
            &format!("Correct the path (a relative one counts from the file it stands in), or make the file{to_make}."),
        ),
        ErrorKind::PermissionDenied => {
            refuse("a file that this user may not read at", "Let this user read it, or start Weir as its owner.")
        }
        _ => refuse("a file that can't be read at", "Check the path and the disk."),
    };
    let file = File::open(path).map_err(failed)?;
    if file.metadata().map_err(failed)?.is_dir() {
        return Err(refuse("a folder at", "Name the file in it."));
    }
    let mut bytes = Vec::new();
    file.take(LARGEST + 1).read_to_end(&mut bytes).map_err(failed)?;
    let bytes = SecretSlice::from(bytes);
    if bytes.expose_secret().len() as u64 > LARGEST {
        return Err(refuse("more than 4 MiB at", "Name the file that holds only this."));
    }
    Ok(bytes)
}

/// What to say if other users can read the file that a key names. It is no reason to refuse: container secrets are mounted so.
pub(super) fn warning(found: &Found, path: &Path) -> Option<Warning> {
    let mode = std::fs::metadata(path).ok()?.permissions().mode() & 0o777;
    (mode & 0o077 != 0).then(|| Warning {
        place: found.place.clone(),
        key: found.key.clone(),
        seen: format!("{}, to which other users of this machine have access (mode {mode:o})", path.display()),
        accepted: "a file for its owner alone (mode 600)".to_owned(),
        mend: format!("chmod 600 {}", as_shell_word(path)),
    })
}

/// The path as a person can paste it into a shell.
pub fn as_shell_word(path: &Path) -> String {
    let path = path.display().to_string();
    let is_plain = path.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._-+@%".contains(&byte));
    if is_plain { path } else { format!("'{}'", path.replace('\'', r"'\''")) }
}

/// The path, unless it looks like the secret itself put in its place.
pub(super) fn shown(found: &Found, path: &Path) -> String {
    let looks_like_a_path = found.value.as_str().is_some_and(|given| {
        ["/", "./", "../", "~"].iter().any(|start| given.starts_with(start))
            || (given.contains(['.', '/']) && given.split('/').all(|part| part.chars().count() <= 24))
    });
    if looks_like_a_path {
        format!("{path:?}")
    } else {
        "the path that is given (not shown here, since it looks like a secret rather than a path)".to_owned()
    }
}
