//! Looks at long strings in large steps: nearly all of a large body is the base64 of pictures, which is all that this is for. There
//! is no branch and no table within a step, so that the compiler makes vector instructions of it, the widest that the processor
//! has.

use std::ops::Range;

use fearless_simd::{Level, dispatch};

/// So many bytes are looked at in one step.
const STEP: usize = 128;

/// What was seen of the beginning of a string's inside, in whole steps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seen {
    /// How long this beginning is: printable ASCII without a quote that escapes no character but slashes (`\/`).
    pub(super) plain: usize,
    /// The longest part of it that is of the standard base64 alphabet, where a slash may be escaped.
    pub(super) base64: Range<usize>,
    /// How many bytes of that base64 are backslashes, each before a slash.
    pub(super) escaped: usize,
}

/// Looks at the beginning of `bytes`, up to the first step that holds something else.
pub(super) fn look(bytes: &[u8]) -> Seen {
    dispatch!(Level::new(), _ => look_on(bytes))
}

/// Becomes part of what [`look`] chooses between, one form for each kind of processor.
#[inline(always)]
fn look_on(bytes: &[u8]) -> Seen {
    let mut seen = Seen { plain: 0, base64: 0..0, escaped: 0 };
    // The base64 that the last step belongs to.
    let (mut begin, mut escaped) = (0, 0);
    for (step, next) in steps(bytes) {
        if all(step, next, is_base64) {
            let here: u8 = step.iter().map(|&byte| u8::from(byte == b'\\')).sum();
            escaped += usize::from(here);
            let end = seen.plain + STEP;
            if end - begin > seen.base64.len() {
                (seen.base64, seen.escaped) = (begin..end, escaped);
            }
        } else if all(step, next, is_plain) {
            (begin, escaped) = (seen.plain + STEP, 0);
        } else {
            break;
        }
        seen.plain += STEP;
    }
    seen
}

fn is_plain(byte: u8) -> bool {
    (byte.wrapping_sub(b' ') < 0x5f) & (byte != b'"')
}

fn is_base64(byte: u8) -> bool {
    // The slash stands right before the digits.
    ((byte | 0x20).wrapping_sub(b'a') < 26) | (byte.wrapping_sub(b'/') < 11) | (byte == b'+') | (byte == b'\\')
}

/// Each step of `bytes`, and the same bytes one place further on.
#[inline(always)]
fn steps(bytes: &[u8]) -> impl Iterator<Item = (&[u8; STEP], &[u8; STEP])> {
    let (steps, _) = bytes.as_chunks();
    let (next, _) = bytes.get(1..).unwrap_or_default().as_chunks();
    steps.iter().zip(next)
}

/// Whether all bytes of a step are of a kind, and each backslash stands before a slash. `next` are the same bytes one place further on.
#[inline(always)]
fn all(step: &[u8; STEP], next: &[u8; STEP], is_one: impl Fn(u8) -> bool) -> bool {
    let one = |(&byte, &next): (&u8, &u8)| is_one(byte) & ((byte != b'\\') | (next == b'/'));
    step.iter().zip(next).fold(true, |all, pair| all & one(pair))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The same, byte by byte, up to the first that does not belong.
    fn one_by_one(bytes: &[u8], is_one: impl Fn(u8) -> bool) -> usize {
        let belongs = |at: &usize| is_one(bytes[*at]) && (bytes[*at] != b'\\' || bytes.get(at + 1) == Some(&b'/'));
        (0..bytes.len()).take_while(belongs).count()
    }

    proptest! {
        #[test]
        fn as_much_is_found_as_byte_by_byte_but_for_the_last_step(
            parts in prop::collection::vec(prop_oneof!["[A-Za-z0-9+]{0,300}", "(\\\\/){0,3}", "[ -!#-\\[\\]-~]"], 0..24),
            odd: Option<(prop::sample::Index, u8)>,
        ) {
            let mut bytes = parts.concat().into_bytes();
            if let Some((at, byte)) = odd && !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            let seen = look(&bytes);
            let plain = one_by_one(&bytes, |byte| (b' '..=b'~').contains(&byte) && byte != b'"');
            prop_assert_eq!(seen.plain, plain.min(bytes.len().saturating_sub(1)) / STEP * STEP);
            let known = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/\\".contains(byte);
            let steps: Vec<bool> = bytes[..seen.plain].chunks(STEP).map(|step| step.iter().all(known)).collect();
            let longest = steps.split(|known| !known).map(<[bool]>::len).max().unwrap_or(0);
            prop_assert_eq!(seen.base64.len(), longest * STEP);
            let base64 = &bytes[seen.base64.clone()];
            prop_assert!(seen.base64.end <= seen.plain && base64.iter().all(known));
            prop_assert_eq!(seen.escaped, base64.iter().filter(|&&byte| byte == b'\\').count());
        }
    }

    #[test]
    fn every_byte_is_judged_as_it_should_be_in_every_place() {
        for byte in 0..=u8::MAX {
            for place in [0, 1, 64, STEP - 1] {
                let mut bytes = [b'A'; STEP * 2];
                bytes[place] = byte;
                bytes[place + 1] = b'/';
                let seen = look(&bytes);
                let printable = (b' '..=b'~').contains(&byte) && byte != b'"';
                assert_eq!(seen.plain > 0, printable, "{byte} at {place}");
                let known = byte.is_ascii_alphanumeric() || b"+/\\".contains(&byte);
                assert_eq!(seen.base64.start == 0 && !seen.base64.is_empty(), known, "{byte} at {place}");
            }
        }
    }

    #[test]
    fn the_vector_forms_see_what_the_plain_one_sees() {
        let picture = ["data:image\\/jpeg;base64,", &"\\/9j\\/4AAQSkZJRg".repeat(100), "==\" tail"].concat();
        let seen = look_on(picture.as_bytes());
        assert!(seen.plain > 1000 && seen.base64.start == STEP && seen.escaped > 100, "{seen:?}");
        assert_eq!(look(picture.as_bytes()), seen);
        assert_eq!(dispatch!(Level::baseline(), _ => look_on(picture.as_bytes())), seen);
    }
}
