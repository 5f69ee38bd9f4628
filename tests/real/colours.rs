//! Pictures of one colour, as small or as large as a test wants them.

use crate::common::{CANARY, base64};

/// The first byte of each line of a PNG.
const NOT_FILTERED: u8 = 0;

/// Red, green or blue.
#[derive(Debug, Clone, Copy)]
pub enum Colour {
    Red,
    Green,
    Blue,
}

impl Colour {
    /// The word for it in the model's answer.
    pub fn answer(self) -> &'static str {
        match self {
            Colour::Red => "I see a red picture.",
            Colour::Green => "I see a green picture.",
            Colour::Blue => "I see a blue picture.",
        }
    }

    /// A small picture, as the app puts it into a message.
    pub fn uri(self) -> String {
        self.noisy_uri(64, 0)
    }

    /// A picture of `side` by `side` pixels whose shades differ from pixel to pixel, and from seed to seed. It is stored
    /// uncompressed: 3 bytes a pixel, a third more as base64.
    pub fn noisy_uri(self, side: u32, seed: u32) -> String {
        format!("data:image/png;base64,{}", base64(&png(self, side, seed)))
    }
}

fn png(colour: Colour, side: u32, seed: u32) -> Vec<u8> {
    let mut random = seed;
    let mut noise = || {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (random >> 27) as u8
    };
    let mut pixels = Vec::with_capacity((side * (1 + 3 * side)) as usize);
    for place in 0..side * side {
        if place.is_multiple_of(side) {
            pixels.extend_from_slice(&[NOT_FILTERED]);
        }
        let mut pixel = [noise(), noise(), noise()];
        pixel[colour as usize] += 224;
        pixels.extend_from_slice(&pixel);
    }
    let mut png = b"\x89PNG\r\n\x1a\n".to_vec();
    let size = side.to_be_bytes();
    chunk(&mut png, b"IHDR", &[&size[..], &size[..], &[8, 2, 0, 0, 0]].concat());
    chunk(&mut png, b"tEXt", format!("Comment\0{CANARY}").as_bytes());
    chunk(&mut png, b"IDAT", &stored(&pixels));
    chunk(&mut png, b"IEND", b"");
    png
}

/// A zlib stream that compresses nothing.
fn stored(bytes: &[u8]) -> Vec<u8> {
    let mut zlib = vec![0x78, 0x01];
    let mut blocks = bytes.chunks(65_535).peekable();
    while let Some(block) = blocks.next() {
        let length = u16::try_from(block.len()).unwrap();
        zlib.push(u8::from(blocks.peek().is_none()));
        zlib.extend_from_slice(&length.to_le_bytes());
        zlib.extend_from_slice(&(!length).to_le_bytes());
        zlib.extend_from_slice(block);
    }
    let (mut a, mut b) = (1u32, 0u32);
    for byte in bytes {
        a = (a + u32::from(*byte)) % 65_521;
        b = (b + a) % 65_521;
    }
    zlib.extend_from_slice(&((b << 16) | a).to_be_bytes());
    zlib
}

fn chunk(png: &mut Vec<u8>, kind: &[u8; 4], data: &[u8]) {
    png.extend_from_slice(&u32::try_from(data.len()).unwrap().to_be_bytes());
    let start = png.len();
    png.extend_from_slice(kind);
    png.extend_from_slice(data);
    let checksum = checksum(&png[start..]);
    png.extend_from_slice(&checksum.to_be_bytes());
}

/// CRC-32, by a table: the large pictures are tens of megabytes.
fn checksum(bytes: &[u8]) -> u32 {
    let table: [u32; 256] = std::array::from_fn(|index| {
        (0..8).fold(index as u32, |crc, _| if crc & 1 == 1 { (crc >> 1) ^ 0xEDB8_8320 } else { crc >> 1 })
    });
    !bytes.iter().fold(u32::MAX, |crc, byte| table[((crc ^ u32::from(*byte)) & 0xFF) as usize] ^ (crc >> 8))
}
