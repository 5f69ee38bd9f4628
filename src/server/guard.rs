//! The token, checked before anything else is looked at (contract, "Authentication").

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{Digest, SHA256, digest};
use http::HeaderMap;
use http::header::AUTHORIZATION;

use crate::settings::Tokens;

/// Knows the valid tokens, as digests.
pub struct Guard {
    digests: Vec<Digest>,
}

impl std::fmt::Debug for Guard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Guard({} tokens)", self.digests.len())
    }
}

impl Guard {
    /// A guard that lets any of the tokens in: during a rotation there are two.
    pub fn new(tokens: &Tokens) -> Self {
        Guard { digests: tokens.iter().map(|token| digest(&SHA256, token)).collect() }
    }

    /// Whether the request carries exactly one `Authorization` header that is the scheme `Bearer` in any case, one space, and
    /// the exact bytes of a token.
    ///
    /// Digests are compared, each with every token and in constant time, so that neither length nor content of a token shows
    /// in how long the answer takes.
    pub fn admits(&self, headers: &HeaderMap) -> bool {
        let mut values = headers.get_all(AUTHORIZATION).iter();
        let (Some(value), None) = (values.next(), values.next()) else { return false };
        let Some((scheme, token)) = value.as_bytes().split_at_checked("Bearer ".len()) else { return false };
        if !scheme.eq_ignore_ascii_case(b"Bearer ") {
            return false;
        }
        let offered = digest(&SHA256, token);
        let matches = |known: &Digest| verify_slices_are_equal(known.as_ref(), offered.as_ref()).is_ok();
        self.digests.iter().fold(false, |admitted, known| admitted | matches(known))
    }
}
