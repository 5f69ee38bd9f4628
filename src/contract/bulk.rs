//! Looks at long strings in large steps. There is no branch and no table within a step, so that the compiler makes vector
//! instructions of it: nearly all of a large body is the base64 of pictures, which is all that this is for.

/// So many bytes are looked at in one step.
const STEP: usize = 128;

/// The length of the beginning of `bytes` that is printable ASCII without a quote and escapes no character but slashes (`\/`), in
/// whole steps: what is behind it is looked at byte by byte.
pub(super) fn plain(bytes: &[u8]) -> usize {
    let is_plain = |byte: u8| (byte.wrapping_sub(b' ') < 0x5f) & (byte != b'"');
    steps(bytes).take_while(|(step, next)| all(step, next, is_plain)).count() * STEP
}

/// The beginning of a payload, as far as it is base64.
pub(super) struct Base64 {
    /// Its length in bytes.
    pub(super) length: usize,
    /// How many of them are backslashes, each before a slash.
    pub(super) escaped: u64,
}

/// The beginning of `bytes` that is of the standard base64 alphabet, where a slash may be escaped, in whole steps.
pub(super) fn base64(bytes: &[u8]) -> Base64 {
    // The slash stands right before the digits.
    let is_known = |byte: u8| {
        ((byte | 0x20).wrapping_sub(b'a') < 26) | (byte.wrapping_sub(b'/') < 11) | (byte == b'+') | (byte == b'\\')
    };
    let sound = steps(bytes).take_while(|(step, next)| all(step, next, is_known));
    let (length, escaped) = sound.fold((0, 0), |(length, escaped), (step, _)| {
        let here: u8 = step.iter().map(|&byte| u8::from(byte == b'\\')).sum();
        (length + STEP, escaped + u64::from(here))
    });
    Base64 { length, escaped }
}

/// Each step of `bytes`, and the same bytes one place further on.
fn steps(bytes: &[u8]) -> impl Iterator<Item = (&[u8; STEP], &[u8; STEP])> {
    let (steps, _) = bytes.as_chunks();
    let (next, _) = bytes.get(1..).unwrap_or_default().as_chunks();
    steps.iter().zip(next)
}

/// Whether all bytes of a step are of a kind, and each backslash stands before a slash. `next` are the same bytes one place further on.
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
            parts in prop::collection::vec("[A-Za-z0-9+]{0,200}(\\\\/){0,3}", 0..12),
            odd: Option<(prop::sample::Index, u8)>,
        ) {
            let mut bytes = parts.concat().into_bytes();
            if let Some((at, byte)) = odd && !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            let by_step = |length: usize| length.min(bytes.len().saturating_sub(1)) / STEP * STEP;
            let plain_length = one_by_one(&bytes, |byte| (b' '..=b'~').contains(&byte) && byte != b'"');
            prop_assert_eq!(plain(&bytes), by_step(plain_length));
            let known = |byte: u8| byte.is_ascii_alphanumeric() || b"+/\\".contains(&byte);
            let Base64 { length, escaped } = base64(&bytes);
            prop_assert_eq!(length, by_step(one_by_one(&bytes, known)));
            prop_assert_eq!(escaped as usize, bytes[..length].iter().filter(|&&byte| byte == b'\\').count());
        }
    }

    #[test]
    fn every_byte_is_judged_as_it_should_be_in_every_place() {
        for byte in 0..=u8::MAX {
            for place in [0, 1, 64, STEP - 1] {
                let mut bytes = [b'A'; STEP * 2];
                bytes[place] = byte;
                bytes[place + 1] = b'/';
                let printable = (b' '..=b'~').contains(&byte) && byte != b'"';
                assert_eq!(plain(&bytes) > 0, printable, "{byte} at {place}");
                let known = byte.is_ascii_alphanumeric() || b"+/\\".contains(&byte);
                assert_eq!(base64(&bytes).length > 0, known, "{byte} at {place}");
            }
        }
    }
}
