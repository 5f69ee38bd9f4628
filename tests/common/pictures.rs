//! Tiny pictures: a real PNG, and byte strings that begin as the other kinds do. Each carries the canary.
use super::CANARY;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// `bytes` in standard base64.
pub fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// `data:MEDIA;base64,…`
pub fn data_uri(media: &str, bytes: &[u8]) -> String {
    format!("data:{media};base64,{}", base64(bytes))
}

/// The data URI of [`png`] with this shade.
pub fn png_uri(shade: u8) -> String {
    data_uri("image/png", &png(shade, 0))
}

/// The data URI of [`jpeg`] with this tag.
pub fn jpeg_uri(tag: u8) -> String {
    data_uri("image/jpeg", &jpeg(tag))
}

/// A valid grey PNG of 4 by 4 pixels; `extra` bytes of comment make it larger.
pub fn png(shade: u8, extra: usize) -> Vec<u8> {
    // The comment's text begins behind 49 bytes; two more, and the canary stands whole in the base64.
    let comment = [b"  ".as_slice(), CANARY.as_bytes(), &vec![b'.'; extra]].concat();
    weir::cli::png::write(4, 8, &vec![vec![shade; 4]; 4], Some(&comment))
}

fn with_canary(prefix: &[u8], tag: u8) -> Vec<u8> {
    let mut bytes = prefix.to_vec();
    while !bytes.len().is_multiple_of(3) {
        bytes.push(0);
    }
    bytes.extend_from_slice(CANARY.as_bytes());
    // 0xFF bytes give base64 full of '/', which the app escapes.
    bytes.extend_from_slice(&[tag, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF]);
    bytes
}

/// Begins as a JPEG file does.
pub fn jpeg(tag: u8) -> Vec<u8> {
    let mut bytes = with_canary(b"\xFF\xD8\xFF\xE0\x00\x10JFIF\x00\x01\x01\x00\x00\x01\x00\x01\x00\x00", tag);
    bytes.extend_from_slice(&[0xFF, 0xD9]);
    bytes
}

/// Begins as a GIF file does.
pub fn gif() -> Vec<u8> {
    with_canary(b"GIF89a\x01\x00\x01\x00\x80\x00\x00", 0)
}

/// Begins as a WebP file does.
pub fn webp() -> Vec<u8> {
    with_canary(b"RIFF\x24\x00\x00\x00WEBPVP8 ", 0)
}

/// Begins as a BMP file does.
pub fn bmp() -> Vec<u8> {
    with_canary(b"BM\x46\x00\x00\x00\x00\x00\x00\x00\x36\x00\x00\x00", 0)
}

/// Begins as an iPhone's HEIC file does.
pub fn heic() -> Vec<u8> {
    with_canary(b"\x00\x00\x00\x18ftypheic\x00\x00\x00\x00mif1heic", 0)
}

/// Begins as an AVIF file does.
pub fn avif() -> Vec<u8> {
    with_canary(b"\x00\x00\x00\x1cftypavif\x00\x00\x00\x00avifmif1miaf", 0)
}

/// A drawing, not a picture of pixels.
pub fn svg() -> Vec<u8> {
    with_canary(b"<svg xmlns=\"http://www.w3.org/2000/svg\"></svg>", b' ')
}

/// The canary as it may be written: plainly (first), inside base64 at each of the three alignments, as a list of numbers
/// (what Rust makes of bytes that are shown for debugging), and in hexadecimal.
pub fn canary_forms() -> Vec<String> {
    let mut forms = vec![CANARY.to_owned()];
    for skipped in 0..3 {
        let mut bytes = vec![0u8; skipped];
        bytes.extend_from_slice(CANARY.as_bytes());
        let encoded = STANDARD.encode(&bytes);
        // Only characters whose six bits all come from the canary.
        let first = (skipped * 8).div_ceil(6);
        let last = bytes.len() * 8 / 6;
        forms.push(encoded[first..last].to_owned());
    }
    for separator in [", ", ","] {
        let numbers: Vec<String> = CANARY.bytes().map(|byte| byte.to_string()).collect();
        forms.push(numbers.join(separator));
    }
    let hexadecimal: String = CANARY.bytes().map(|byte| format!("{byte:02x}")).collect();
    forms.push(hexadecimal.to_uppercase());
    forms.push(hexadecimal);
    forms
}

/// Whether any form of the canary stands in it.
pub fn shows_canary(text: &str) -> bool {
    canary_forms().iter().any(|form| text.contains(form))
}
