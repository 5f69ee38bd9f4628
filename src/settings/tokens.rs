//! The bearer tokens that are let in.

use std::fmt;
use std::path::{Path, PathBuf};

use figment::value::Value;
use secrecy::{ExposeSecret, SecretSlice};

use super::environment::Environment;
use super::layers::Layers;
use super::refusal::{Fault, SettingsError};
use super::value::Found;
use super::{Warning, secret_file};

const ACCEPTED: &str = "one token a line";

/// The bearer tokens that are let in: opaque bytes, compared exactly, as the contract's chapter on authentication says.
#[derive(Clone)]
pub struct Tokens(Vec<SecretSlice<u8>>);

impl Tokens {
    /// The bytes of each token, as a client sends them after `Bearer `.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().map(|token| token.expose_secret())
    }

    /// None yet; [`read`] fills them in.
    pub(super) fn none() -> Self {
        Self(Vec::new())
    }
}

/// Prints how many there are, and nothing of them.
impl fmt::Debug for Tokens {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Tokens({} not shown)", self.0.len())
    }
}

/// `ADAPTER_TOKEN`, else the file that `token_file` names, else `fallback`.
pub(super) fn read(
    layers: &Layers,
    environment: &Environment,
    fallback: Option<&Path>,
    warnings: &mut Vec<Warning>,
) -> Result<Tokens, SettingsError> {
    if let Some(token) = environment.token() {
        if let Some(fault) = fault(token.expose_secret()) {
            return Err(Fault {
                place: "environment".to_owned(),
                key: "ADAPTER_TOKEN".to_owned(),
                found: fault.to_owned(),
                accepted: "the bytes of one token as the app sends them, without white space around them".to_owned(),
                mend: "Set it again, or unset it and use token_file; `weir token` makes a good one.".to_owned(),
            }
            .into());
        }
        return Ok(Tokens(vec![token.clone()]));
    }
    let (found, path) = match (layers.get(&["token_file"]), fallback) {
        (Some(found), _) => {
            let path = found.file()?;
            (found, path)
        }
        (None, Some(path)) => (fallback_key(path), path.to_owned()),
        (None, None) => {
            return Err(Fault {
                place: layers.place(&["token_file"]),
                key: "token_file".to_owned(),
                found: "no token".to_owned(),
                accepted: "token_file, or ADAPTER_TOKEN in the environment".to_owned(),
                mend: "Put the token that the app sends into a file and name the file with token_file; `weir token` \
                       makes one."
                    .to_owned(),
            }
            .into());
        }
    };
    let bytes = secret_file::read(&found, &path, ACCEPTED, ": weir token --output does")?;
    let mut tokens = Vec::new();
    for (number, line) in bytes.expose_secret().split(|byte| *byte == b'\n').enumerate() {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            continue;
        }
        if let Some(fault) = fault(line) {
            return Err(found.refuse(
                format!("{fault} in line {} of {}", number + 1, secret_file::shown(&found, &path)),
                ACCEPTED,
                "Write the token as the app sends it, with nothing around it.",
            ));
        }
        tokens.push(SecretSlice::from(line.to_vec()));
    }
    if tokens.is_empty() {
        return Err(found.refuse(
            format!("no token in {}", secret_file::shown(&found, &path)),
            ACCEPTED,
            "Write the token that the app sends into it; `weir token` makes one.",
        ));
    }
    warnings.extend(secret_file::warning(&found, &path));
    Ok(Tokens(tokens))
}

fn fallback_key(path: &Path) -> Found {
    Found {
        value: Value::from(path.to_string_lossy().as_ref()),
        key: "token_file".to_owned(),
        place: path.display().to_string(),
        folder: PathBuf::new(),
        is_default: false,
        variable: None,
    }
}

/// Why no request could ever carry this token, if none could: HTTP strips white space around a header's value, and
/// refuses control characters in it. Every other byte is allowed; the contract forbids to police more.
fn fault(token: &[u8]) -> Option<&'static str> {
    let is_blank = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    if token.is_empty() {
        Some("an empty token")
    } else if token.iter().any(|byte| (*byte < 0x20 && *byte != b'\t') || *byte == 0x7f) {
        Some("a token with a control character or a line break, which HTTP can't carry")
    } else if is_blank(token.first()) || is_blank(token.last()) {
        Some("a token with white space at an edge, which HTTP strips, so that it could never match")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_any_bytes_that_a_header_can_carry() {
        for good in [b"x".as_slice(), b"a b\tc", "schl\u{fc}ssel".as_bytes(), b"\xff\xfe"] {
            assert_eq!(fault(good), None, "{good:?}");
        }
        for bad in [b"".as_slice(), b" x", b"x ", b"\tx", b"x\t", b"x\r", b"x\ny", b"x\0y", b"x\x7f"] {
            assert!(fault(bad).is_some(), "{bad:?}");
        }
    }
}
