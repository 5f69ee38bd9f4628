//! Inline pictures: `data:image/…;base64,…` as the contract knows them, checked without decoding them into a copy.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;

use super::bulk::{self, Seen};

/// What a picture is, judged by its first bytes and not by its label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ImageKind {
    /// JPEG: what the app sends. Every backend decodes it.
    Jpeg,
    /// PNG: what the published checker sends. Every backend decodes it.
    Png,
    /// WebP.
    WebP,
    /// GIF.
    Gif,
    /// BMP.
    Bmp,
    /// HEIC or HEIF.
    Heic,
    /// AVIF.
    Avif,
    /// SVG, which is text and not a raster picture.
    Svg,
    /// Bytes that none of the above begins with. The backend gets the picture under its own label and judges it.
    Unknown,
}

impl ImageKind {
    /// The media type that the first bytes prove; `None` where they prove nothing.
    pub fn media_type(self) -> Option<&'static str> {
        match self {
            ImageKind::Jpeg => Some("image/jpeg"),
            ImageKind::Png => Some("image/png"),
            ImageKind::WebP => Some("image/webp"),
            ImageKind::Gif => Some("image/gif"),
            ImageKind::Bmp => Some("image/bmp"),
            ImageKind::Heic => Some("image/heic"),
            ImageKind::Avif => Some("image/avif"),
            ImageKind::Svg => Some("image/svg+xml"),
            ImageKind::Unknown => None,
        }
    }

    fn sniff(start: &[u8]) -> Self {
        let brand = start.get(4..12);
        if start.starts_with(&[0xff, 0xd8, 0xff]) {
            ImageKind::Jpeg
        } else if start.starts_with(b"\x89PNG\r\n\x1a\n") {
            ImageKind::Png
        } else if start.starts_with(b"RIFF") && start.get(8..12) == Some(b"WEBP") {
            ImageKind::WebP
        } else if start.starts_with(b"GIF87a") || start.starts_with(b"GIF89a") {
            ImageKind::Gif
        } else if start.starts_with(b"BM") && start.get(6..10) == Some(&[0; 4]) {
            ImageKind::Bmp
        } else if brand.is_some_and(|brand| brand == b"ftypavif" || brand == b"ftypavis") {
            ImageKind::Avif
        } else if brand.is_some_and(is_heif_brand) {
            ImageKind::Heic
        } else if looks_like_svg(start) {
            ImageKind::Svg
        } else {
            ImageKind::Unknown
        }
    }
}

/// `ftyp` boxes whose major brand says HEIF (ISO/IEC 23008-12 and Apple's practice).
fn is_heif_brand(brand: &[u8]) -> bool {
    brand.starts_with(b"ftyp")
        && matches!(&brand[4..], b"heic" | b"heix" | b"heim" | b"heis" | b"hevc" | b"hevx" | b"mif1" | b"msf1")
}

fn looks_like_svg(start: &[u8]) -> bool {
    let start = start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(start).trim_ascii_start();
    start.starts_with(b"<svg") || start.starts_with(b"<?xml") || start.starts_with(b"<!DOCTYPE svg")
}

/// A picture of the conversation: its base64 payload as it stood in the body, known to be sound.
///
/// `Debug` shows only kind and size.
#[derive(Clone)]
pub struct Image {
    payload: Bytes,
    media_type: Bytes,
    kind: ImageKind,
    decoded_size: u64,
}

impl std::fmt::Debug for Image {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Image({:?}, {} bytes)", self.kind, self.decoded_size)
    }
}

impl Image {
    /// The base64 text as JSON string content: the standard alphabet, padded, where a `/` may be written `\/`.
    pub fn payload_as_json(&self) -> &Bytes {
        &self.payload
    }

    /// The media type to forward: what the first bytes say, else the label in lower case.
    pub fn media_type(&self) -> &Bytes {
        &self.media_type
    }

    /// What the picture is by its first bytes.
    pub fn kind(&self) -> ImageKind {
        self.kind
    }

    /// Size of the picture itself in bytes, base64 undone.
    pub fn decoded_size(&self) -> u64 {
        self.decoded_size
    }

    /// Reads a raw JSON string literal of the body, quotes included. `seen` is what was seen of its inside, if it was looked at.
    ///
    /// # Errors
    /// A sentence for the client that says what is wrong with it; it never quotes the literal.
    pub(super) fn from_literal(literal: &Bytes, seen: Option<Seen>) -> Result<Self, &'static str> {
        let inside = literal.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")).ok_or(NOT_A_STRING)?;
        let seen = seen.unwrap_or_else(|| bulk::look(inside));
        if escapes_only_slashes(&inside[seen.plain..]) {
            return Self::from_uri(literal.slice_ref(inside), seen);
        }
        // Other escapes are legal and rare: decode once. What a data URI may hold needs no escaping again.
        let decoded: String = serde_json::from_slice(literal).map_err(|_| NOT_A_STRING)?;
        if decoded.bytes().any(|byte| byte == b'"' || byte == b'\\' || byte < 0x20) {
            return Err(BAD_BASE64);
        }
        let seen = bulk::look(decoded.as_bytes());
        Self::from_uri(Bytes::from(decoded), seen)
    }

    /// Reads a URI whose slashes may be written `\/`; it has no other escape.
    fn from_uri(uri: Bytes, seen: Seen) -> Result<Self, &'static str> {
        let comma = memchr::memchr(b',', &uri).ok_or(NOT_INLINE)?;
        let header: Vec<u8> = uri[..comma].iter().copied().filter(|&byte| byte != b'\\').collect();
        let header = String::from_utf8(header).map_err(|_| NOT_INLINE)?.to_ascii_lowercase();
        let mut fields = header.strip_prefix("data:").ok_or(NOT_INLINE)?.split(';').map(str::trim);
        let label = fields.next().unwrap_or_default();
        // RFC 2397 puts the token last; parameters before it (a name, a charset) say nothing about the picture.
        if fields.next_back() != Some("base64") {
            return Err(NOT_BASE64);
        }
        let subtype = label.strip_prefix("image/").ok_or(NOT_AN_IMAGE)?;
        if subtype.is_empty() || !subtype.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte)) {
            return Err(NOT_AN_IMAGE);
        }
        let payload = uri.slice(comma + 1..);
        let padding = payload.iter().rev().take_while(|&&byte| byte == b'=').count();
        let characters = count_base64(&uri[..uri.len() - padding], comma + 1, &seen)?;
        if characters == 0 || padding > 2 || !(characters + padding).is_multiple_of(4) {
            return Err(BAD_BASE64);
        }
        let kind = ImageKind::sniff(&first_bytes(&payload));
        let media_type = match kind.media_type() {
            Some(proven) => Bytes::from_static(proven.as_bytes()),
            None => Bytes::copy_from_slice(label.as_bytes()),
        };
        // Each character stands for six bits.
        Ok(Image { payload, media_type, kind, decoded_size: (characters * 3 / 4) as u64 })
    }
}

const NOT_A_STRING: &str = "the url of an image_url part must be a string";
const NOT_INLINE: &str = "pictures must be inline: a data: URI with base64; links are never fetched";
const NOT_BASE64: &str = "the data: URI of a picture must be base64";
const NOT_AN_IMAGE: &str = "the data: URI of an image_url part must have an image/ media type";
const BAD_BASE64: &str = "the base64 of a picture is not sound: standard alphabet, padded, no white space";

/// Whether JSON string content has no escape but that of slashes, as the app writes all of them.
fn escapes_only_slashes(inside: &[u8]) -> bool {
    let mut after_escape = 0;
    memchr::memchr_iter(b'\\', inside).all(|at| {
        // A second backslash would be an escaped one, and the escape another than that of a slash.
        let is_slash = at >= after_escape && inside.get(at + 1) == Some(&b'/');
        after_escape = at + 2;
        is_slash
    })
}

/// Counts the characters of the base64 that begins at `begin`, without its padding, and checks that there are no others. That a
/// backslash only stands before a slash is known.
fn count_base64(uri: &[u8], begin: usize, seen: &Seen) -> Result<usize, &'static str> {
    // The comma before it is not of the alphabet, so that what was seen of that lies before the comma, or in here.
    let (seen, seen_escaped) =
        if seen.base64.start >= begin { (seen.base64.clone(), seen.escaped) } else { (begin..begin, 0) };
    let rest = uri[begin..seen.start].iter().chain(&uri[seen.end..]);
    let is_known = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/\\".contains(byte);
    if !rest.clone().all(is_known) {
        return Err(BAD_BASE64);
    }
    let escaped = rest.filter(|&&byte| byte == b'\\').count();
    Ok(uri.len() - begin - escaped - seen_escaped)
}

/// Bits of the last character that no byte needs may be anything, as the check of the payload and the model servers have it.
const BASE64: GeneralPurpose =
    GeneralPurpose::new(&STANDARD, GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true));

/// The first bytes of the picture, enough to tell what it is.
fn first_bytes(payload: &[u8]) -> Vec<u8> {
    const ENOUGH: usize = 128;
    let start: Vec<u8> = payload.iter().copied().filter(|&byte| byte != b'\\').take(ENOUGH).collect();
    BASE64.decode(&start[..start.len() / 4 * 4]).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(literal: &str) -> Result<Image, &'static str> {
        Image::from_literal(&Bytes::copy_from_slice(literal.as_bytes()), None)
    }

    const PNG: &str = "iVBORw0KGgoAAAANSUhEUg==";

    #[test]
    fn a_payload_with_escaped_slashes_is_passed_on_as_it_stands() {
        let image = image(r#""data:image\/jpeg;base64,\/9j\/4AAQSkZJRgAB""#).unwrap();
        assert_eq!(image.payload_as_json().as_ref(), br"\/9j\/4AAQSkZJRgAB");
        assert_eq!((image.kind(), image.decoded_size()), (ImageKind::Jpeg, 12));
    }

    #[test]
    fn other_escapes_are_decoded() {
        let image = image(r#""data:image/png;base64,\u0069VBORw0KGgoAAAANSUhEUg==""#).unwrap();
        assert_eq!(image.payload_as_json().as_ref(), PNG.as_bytes());
    }

    #[test]
    fn scheme_type_and_token_are_read_in_any_case_and_parameters_are_dropped() {
        for uri in ["DATA:Image/PNG;BASE64,", "data:image/png;name=x;base64,", "data:image/png;charset=utf-8;Base64,"] {
            let image = image(&format!("\"{uri}{PNG}\"")).unwrap();
            assert_eq!(image.media_type().as_ref(), b"image/png", "{uri}");
        }
    }

    #[test]
    fn a_wrong_label_is_corrected_to_what_the_first_bytes_say() {
        assert_eq!(image(&format!("\"data:image/jpg;base64,{PNG}\"")).unwrap().media_type().as_ref(), b"image/png");
    }

    #[test]
    fn a_small_picture_is_known_whatever_the_spare_bits_of_its_last_character_are() {
        for payload in ["iVBORw0KGgoAAAANSUhEUg==", "iVBORw0KGgoAAAANSUhEUh==", "iVBORw0KGgoAAAANSUhEUgB="] {
            let image = image(&format!("\"data:image/x;base64,{payload}\"")).unwrap();
            assert_eq!(image.kind(), ImageKind::Png, "{payload}");
        }
    }

    #[test]
    fn bytes_of_no_known_kind_keep_their_label() {
        let image = image("\"data:image/TIFF;base64,aGVsbG8gd29ybGQ=\"").unwrap();
        assert_eq!((image.kind(), image.media_type().as_ref()), (ImageKind::Unknown, &b"image/tiff"[..]));
        assert_eq!(image.decoded_size(), 11);
    }

    /// The address of a picture of these bytes as the app writes it, as JSON.
    fn as_sent(picture: &[u8]) -> String {
        format!("\"data:image/png;base64,{}\"", BASE64.encode(picture)).replace('/', "\\/")
    }

    #[test]
    fn a_picture_of_any_length_is_taken_and_its_size_is_known() {
        // Noise with many slashes; long enough for each way in which a payload can lie over the steps in which it is looked at.
        let noise = |length: u32| (0..length).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8 | 0xa0).collect();
        for length in 1..900 {
            let picture: Vec<u8> = noise(length);
            let literal = as_sent(&picture);
            let image = image(&literal).unwrap_or_else(|why| panic!("{length} bytes: {why}"));
            assert_eq!(image.decoded_size(), u64::from(length));
            assert_eq!(image.payload_as_json(), literal.split_once(',').unwrap().1.trim_end_matches('"'));
        }
    }

    #[test]
    fn a_wrong_byte_is_found_wherever_it_is() {
        for length in [90, 298, 299, 300, 391] {
            let literal = as_sent(&vec![0xff; length]);
            let begin = literal.find(',').unwrap() + 1;
            for at in begin..literal.len() - 1 {
                for wrong in [b'=', b'-', b',', b' ', b'\\', 0xc3, b'\n'] {
                    let mut bytes = literal.clone().into_bytes();
                    // At the end, one more is padding.
                    let is_padding = wrong == b'=' && bytes[at + 1..bytes.len() - 1].iter().all(|&byte| byte == b'=');
                    if bytes[at] == wrong || is_padding {
                        continue;
                    }
                    bytes[at] = wrong;
                    assert!(Image::from_literal(&Bytes::from(bytes), None).is_err(), "{wrong} at {at} of {length}");
                }
            }
        }
    }

    #[test]
    fn what_is_not_sound_base64_is_refused() {
        for payload in [
            "", "A", "AAA", "AAAAA", "=", "====", "A===", "AA=A", "AA==AAAA", "AAA-", "AAA_", "AA AA", "AAAé", "==\\/A",
        ] {
            assert!(image(&format!("\"data:image/png;base64,{payload}\"")).is_err(), "{payload}");
        }
        assert!(image(r#""data:image/png;base64,AAAA\nAAAA""#).is_err());
    }

    #[test]
    fn what_is_not_an_inline_picture_is_refused() {
        for uri in [
            "",
            "http://x/y.png",
            "file:///etc/passwd",
            "//host/x",
            "data:,x",
            "data:image/png,abcd",
            "data:;base64,AAAA",
            "data:text/plain;base64,AAAA",
            "data:application/pdf;base64,AAAA",
            "data:image/;base64,AAAA",
            "data:image/png;base64",
            "data:image/png;base64;x=y,AAAA",
        ] {
            assert!(image(&format!("\"{uri}\"")).is_err(), "{uri}");
        }
    }

    #[test]
    fn kinds_are_told_apart_by_their_first_bytes() {
        let kinds: [(&[u8], ImageKind); 9] = [
            (b"\xff\xd8\xff\xe0", ImageKind::Jpeg),
            (b"\x89PNG\r\n\x1a\n", ImageKind::Png),
            (b"RIFF\x10\0\0\0WEBPVP8 ", ImageKind::WebP),
            (b"GIF89a", ImageKind::Gif),
            (b"BM\x10\0\0\0\0\0\0\0", ImageKind::Bmp),
            (b"\0\0\0\x18ftypheic", ImageKind::Heic),
            (b"\0\0\0\x18ftypavif", ImageKind::Avif),
            (b"  <svg xmlns=", ImageKind::Svg),
            (b"hello", ImageKind::Unknown),
        ];
        for (start, kind) in kinds {
            assert_eq!(ImageKind::sniff(start), kind);
        }
    }
}
