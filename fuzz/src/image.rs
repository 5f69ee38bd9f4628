//! A second, slower reading of data URIs: decoded first, judged then.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use weir::contract::{Image, ImageKind};

/// Padded, of the standard alphabet; bits that no byte needs may be anything, as in every decoder of the model servers.
const BASE64: GeneralPurpose =
    GeneralPurpose::new(&STANDARD, GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true));

/// A sound picture.
pub(crate) struct Picture {
    label: String,
    payload: String,
    bytes: Vec<u8>,
}

impl Picture {
    /// Reads the `url` of a part, its JSON escapes undone. `None` if it is no sound inline picture.
    pub(crate) fn read(url: &str) -> Option<Self> {
        if url.contains(|character: char| matches!(character, '"' | '\\') || character < ' ') {
            return None;
        }
        let (header, payload) = url.split_once(',')?;
        let header = header.to_ascii_lowercase();
        let fields: Vec<&str> = header.strip_prefix("data:")?.split(';').map(str::trim).collect();
        let [label, .., "base64"] = fields[..] else { return None };
        let subtype = label.strip_prefix("image/")?;
        let sound = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
        if subtype.is_empty() || !subtype.bytes().all(sound) || payload.is_empty() {
            return None;
        }
        let bytes = BASE64.decode(payload).ok()?;
        Some(Picture { label: label.to_owned(), payload: payload.to_owned(), bytes })
    }

    pub(crate) fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Weir read the same picture, and tells of it only what is so.
    pub(crate) fn assert_is(&self, image: &Image) {
        assert_eq!(image.decoded_size(), self.size());
        let payload = std::str::from_utf8(image.payload_as_json()).unwrap();
        assert_eq!(payload.replace("\\/", "/"), self.payload);
        let media_type = std::str::from_utf8(image.media_type()).unwrap();
        match image.kind().media_type() {
            Some(proven) => assert_eq!(media_type, proven),
            None => assert_eq!(media_type, self.label),
        }
        let begins: [(&[u8], ImageKind); 4] = [
            (b"\xff\xd8\xff", ImageKind::Jpeg),
            (b"\x89PNG\r\n\x1a\n", ImageKind::Png),
            (b"GIF89a", ImageKind::Gif),
            (b"<svg", ImageKind::Svg),
        ];
        for (start, kind) in begins {
            assert_eq!(image.kind() == kind, self.bytes.starts_with(start) || self.also(kind), "{kind:?}");
        }
    }

    /// Beginnings that mean the same as the one that is looked for first.
    fn also(&self, kind: ImageKind) -> bool {
        match kind {
            ImageKind::Gif => self.bytes.starts_with(b"GIF87a"),
            ImageKind::Svg => {
                // So many bytes are looked at.
                let start = &self.bytes[..self.bytes.len().min(96)];
                let start = start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(start).trim_ascii_start();
                [&b"<svg"[..], b"<?xml", b"<!DOCTYPE svg"].iter().any(|tag| start.starts_with(tag))
            }
            _ => false,
        }
    }
}
