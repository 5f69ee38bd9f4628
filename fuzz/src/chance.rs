//! Choices that an input makes by itself: the same input always makes the same ones, and recordings serve as inputs unchanged.

/// A small generator whose seed is a hash of the input.
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn of(input: &[u8]) -> Self {
        let hash = input
            .iter()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        Chance(hash | 1)
    }

    /// A number below `end`, which is at least 1.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % end
    }
}
