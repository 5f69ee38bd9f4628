//! A picture with digits that stand nowhere else: whoever names them has seen it.

use aws_lc_rs::rand;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::cli::{CommandError, png};

/// Six: with one misread digit forgiven, a guess is right once in some 18 000 times.
const COUNT: usize = 6;
/// The picture in pixels. It is far higher than the digits need, since many image processors cut or press a picture to a square.
const WIDTH: usize = 640;
const HEIGHT: usize = 480;
/// A dot of a digit in pixels.
const DOT: usize = 8;
/// The dots from one digit to the next: models misread digits that stand close together.
const PITCH: usize = 10;
/// The dots of a digit.
const COLUMNS: usize = 6;
const ROWS: usize = 9;

/// Each digit in dots, row by row.
#[rustfmt::skip]
const SHAPES: [[&[u8; COLUMNS]; ROWS]; 10] = [
    [b".####.", b"#....#", b"#....#", b"#....#", b"#....#", b"#....#", b"#....#", b"#....#", b".####."],
    [b"...#..", b"..##..", b".#.#..", b"...#..", b"...#..", b"...#..", b"...#..", b"...#..", b".#####"],
    [b".####.", b"#....#", b".....#", b".....#", b"....#.", b"..##..", b".#....", b"#.....", b"######"],
    [b".####.", b"#....#", b".....#", b".....#", b"..###.", b".....#", b".....#", b"#....#", b".####."],
    [b"....#.", b"...##.", b"..#.#.", b".#..#.", b"#...#.", b"#...#.", b"######", b"....#.", b"....#."],
    [b"######", b"#.....", b"#.....", b"#####.", b".....#", b".....#", b".....#", b"#....#", b".####."],
    [b"..###.", b".#....", b"#.....", b"#.....", b"#####.", b"#....#", b"#....#", b"#....#", b".####."],
    [b"######", b".....#", b".....#", b"....#.", b"....#.", b"...#..", b"...#..", b"..#...", b"..#..."],
    [b".####.", b"#....#", b"#....#", b"#....#", b".####.", b"#....#", b"#....#", b"#....#", b".####."],
    [b".####.", b"#....#", b"#....#", b"#....#", b".#####", b".....#", b".....#", b"....#.", b".###.."],
];

/// The digits of one picture, each from 0 to 9.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Digits(pub [u8; COUNT]);

impl Digits {
    /// Digits that nobody can know.
    pub(super) fn random() -> Result<Self, CommandError> {
        let mut bytes = [0; COUNT];
        rand::fill(&mut bytes)
            .map_err(|_| CommandError::Failed("the system gave no random bytes for a picture".to_owned()))?;
        Ok(Self(bytes.map(|byte| byte % 10)))
    }

    /// The picture as an inline PNG, black on white.
    pub fn data_uri(self) -> String {
        format!("data:image/png;base64,{}", STANDARD.encode(self.png()))
    }

    fn png(self) -> Vec<u8> {
        // Eight pixels a byte; a bit that is set is white.
        let byte =
            |at: usize, y: usize| (at * 8..at * 8 + 8).fold(0, |bits, x| (bits << 1) | u8::from(!self.is_ink(x, y)));
        let rows: Vec<Vec<u8>> = (0..HEIGHT).map(|y| (0..WIDTH / 8).map(|at| byte(at, y)).collect()).collect();
        png::write(WIDTH as u32, 1, &rows, None)
    }

    /// Whether the pixel belongs to a digit.
    fn is_ink(self, x: usize, y: usize) -> bool {
        let left = (WIDTH - ((COUNT - 1) * PITCH + COLUMNS) * DOT) / 2;
        let top = (HEIGHT - ROWS * DOT) / 2;
        let (Some(x), Some(y)) = (x.checked_sub(left), y.checked_sub(top)) else { return false };
        let (column, row) = (x / DOT, y / DOT);
        let digit = self.0.get(column / PITCH).map(|digit| usize::from(*digit));
        let dots = digit.and_then(|digit| SHAPES.get(digit)?.get(row));
        dots.and_then(|dots| dots.get(column % PITCH)) == Some(&b'#')
    }

    /// Whether the reply names the digits: in one number, or one by one. One may be misread, but only where the reply names no
    /// other number of that length: a model that saw nothing does not come so near.
    pub(super) fn are_read_in(self, reply: &str) -> bool {
        let named = numbers_in(reply);
        let misread = |number: &[u8; COUNT]| self.0.iter().zip(number).filter(|(one, other)| one != other).count();
        match named.as_slice() {
            [only] => misread(only) <= 1,
            several => several.iter().any(|number| misread(number) == 0),
        }
    }
}

/// The different numbers of six digits in a text: digits side by side, or with at most two separators between them.
fn numbers_in(text: &str) -> Vec<[u8; COUNT]> {
    let mut numbers = Vec::new();
    let mut add = |digits: &[u8]| {
        if let Ok(number) = <[u8; COUNT]>::try_from(digits)
            && !numbers.contains(&number)
        {
            numbers.push(number);
        }
    };
    for longest_gap in [0, 2] {
        let mut digits = Vec::new();
        let mut gap = 0;
        for letter in text.chars() {
            if let Some(digit) = letter.to_digit(10).and_then(|digit| u8::try_from(digit).ok()) {
                if gap > longest_gap {
                    add(&digits);
                    digits.clear();
                }
                digits.push(digit);
                gap = 0;
            } else {
                gap = if matches!(letter, ' ' | ',' | '.' | '-' | '\n') { gap + 1 } else { longest_gap + 1 };
            }
        }
        add(&digits);
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGITS: Digits = Digits([4, 8, 2, 9, 1, 7]);

    #[test]
    fn digits_are_read_however_a_model_writes_them() {
        for reply in [
            "482917",
            "The digits are **482917**.",
            "4 8 2 9 1 7",
            "4, 8, 2, 9, 1, 7",
            "482 917",
            "482-917\n",
            "482917 (six digits): 482917",
            "482911",
            "It says 982917, I think, in 2 colours.",
        ] {
            assert!(DIGITS.are_read_in(reply), "{reply}");
        }
    }

    #[test]
    fn an_answer_without_sight_is_none() {
        for reply in [
            "",
            "I can't see a picture.",
            "48291",
            "4829170",
            "482900",
            "Perhaps 482911 or 482912?",
            "Try in 4 to 8 minutes, 2 times, at 9, 1 or 7.",
            "1234567890",
        ] {
            assert!(!DIGITS.are_read_in(reply), "{reply}");
        }
    }

    #[test]
    fn no_two_digits_look_alike() {
        for (one, first) in SHAPES.iter().enumerate() {
            for (other, second) in SHAPES.iter().enumerate().skip(one + 1) {
                let dots =
                    |shape: &[&[u8; COLUMNS]; ROWS]| shape.iter().flat_map(|row| row.to_vec()).collect::<Vec<_>>();
                let apart = dots(first).iter().zip(dots(second)).filter(|(left, right)| **left != *right).count();
                assert!(apart >= 4, "{one} and {other} differ in {apart} dots");
            }
        }
    }
}
