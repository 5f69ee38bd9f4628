//! What makes each turn its own: a mark in its text, from which everything else about it follows.
use super::common::CANARY;
use memchr::memmem;
use std::fmt;

/// The kind of a turn that no fault of the server hits.
pub const GOOD: usize = 999;

/// Which turn it is, and what is to happen to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mark {
    /// Whose it is.
    pub phone: u64,
    /// The how manieth of that phone.
    pub turn: u64,
    /// What the model server does with it: a place in the list of its faults, or [`GOOD`].
    pub kind: usize,
}

const START: &[u8] = b"mark-";

impl fmt::Display for Mark {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "mark-{:03}-{:09}-{:03}", self.phone, self.turn, self.kind)
    }
}

impl Mark {
    /// The last mark in a request: that of its current message.
    pub fn last_in(bytes: &[u8]) -> Option<Self> {
        let at = memmem::rfind(bytes, START)? + START.len();
        let words = std::str::from_utf8(bytes.get(at..at + 17)?).ok()?;
        let mut numbers = words.split('-').map(str::parse::<u64>);
        let mut number = || numbers.next()?.ok();
        Some(Self { phone: number()?, turn: number()?, kind: usize::try_from(number()?).ok()? })
    }

    /// A short answer to it.
    pub fn answer(self) -> String {
        format!("The answer to {self} {CANARY}.")
    }

    /// The answer of a server that is well: mostly short, now and then long.
    pub fn long_answer(self) -> String {
        let mut random = self.random();
        let most = match random.below(100) {
            0..60 => 100,
            60..90 => 2_000,
            90..99 => 20_000,
            _ => 100_000,
        };
        let length = random.below(most);
        let mut text = self.answer();
        text.extend("Wörter, 日本語 und 🙂; \"quoted\" \\ and\n\ttabbed. ".chars().cycle().take(length));
        text.push('.');
        text
    }

    /// What is random about the turn on the server's side.
    pub fn random(self) -> Random {
        Random::new(self.phone << 40 ^ self.turn << 10 ^ self.kind as u64)
    }

    /// Whether a text holds the mark of another turn.
    pub fn is_mixed_up_in(self, text: &str) -> bool {
        let own = self.to_string();
        memmem::find_iter(text.as_bytes(), START).any(|at| !text[at..].starts_with(&own))
    }
}

/// Random numbers that are the same for the same seed (SplitMix64).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A sequence of its own for each seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below this one.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// True once in so many times.
    pub fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }
}
