//! PNG files of grey pixels, uncompressed: pictures for probes and tests are small and need no more.

/// Writes a PNG of `width` grey pixels a row, each of 1 or 8 bits as `depth` says. Every row holds its packed pixels. A `comment`
/// goes into the file where there is one.
pub fn write(width: u32, depth: u8, rows: &[Vec<u8>], comment: Option<&[u8]>) -> Vec<u8> {
    let height = u32::try_from(rows.len()).unwrap_or(u32::MAX);
    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    let mut header = [width.to_be_bytes(), height.to_be_bytes()].concat();
    // Grey; the only methods of compression and filtering there are; not interlaced.
    header.extend_from_slice(&[depth, 0, 0, 0, 0]);
    add_chunk(&mut file, b"IHDR", &header);
    if let Some(comment) = comment {
        add_chunk(&mut file, b"tEXt", &[b"Comment\0".as_slice(), comment].concat());
    }
    // Each row begins with its filter: none.
    let pixels: Vec<u8> = rows.iter().flat_map(|row| std::iter::once(0).chain(row.iter().copied())).collect();
    add_chunk(&mut file, b"IDAT", &stored(&pixels));
    add_chunk(&mut file, b"IEND", b"");
    file
}

/// A zlib stream that only stores.
fn stored(bytes: &[u8]) -> Vec<u8> {
    let mut stream = vec![0x78, 0x01];
    let mut blocks = bytes.chunks(usize::from(u16::MAX)).peekable();
    while let Some(block) = blocks.next() {
        stream.push(u8::from(blocks.peek().is_none()));
        let length = u16::try_from(block.len()).unwrap_or(u16::MAX);
        stream.extend_from_slice(&length.to_le_bytes());
        stream.extend_from_slice(&(!length).to_le_bytes());
        stream.extend_from_slice(block);
    }
    stream.extend_from_slice(&adler32(bytes).to_be_bytes());
    stream
}

fn add_chunk(file: &mut Vec<u8>, kind: &[u8; 4], data: &[u8]) {
    file.extend_from_slice(&u32::try_from(data.len()).unwrap_or(u32::MAX).to_be_bytes());
    let start = file.len();
    file.extend_from_slice(kind);
    file.extend_from_slice(data);
    let check = crc32(&file[start..]);
    file.extend_from_slice(&check.to_be_bytes());
}

fn crc32(bytes: &[u8]) -> u32 {
    let mut check = u32::MAX;
    for byte in bytes {
        check ^= u32::from(*byte);
        for _ in 0..8 {
            check = if check & 1 == 1 { (check >> 1) ^ 0xEDB8_8320 } else { check >> 1 };
        }
    }
    !check
}

fn adler32(bytes: &[u8]) -> u32 {
    let (mut low, mut high) = (1u32, 0u32);
    for byte in bytes {
        low = (low + u32::from(*byte)) % 65_521;
        high = (high + low) % 65_521;
    }
    (high << 16) | low
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    use super::*;
    use crate::upstream::dialect::probe_image;

    /// Servers refuse a picture with a wrong checksum, and then seem to take none.
    #[test]
    fn the_probe_picture_is_whole() {
        let data = probe_image::DATA_URI.strip_prefix("data:image/png;base64,").unwrap();
        let file = STANDARD.decode(data).unwrap();
        let mut rest = file.strip_prefix(b"\x89PNG\r\n\x1a\n").unwrap();
        let mut kinds = Vec::new();
        while let Some((length, after)) = rest.split_first_chunk::<4>() {
            let (chunk, after) = after.split_at(4 + u32::from_be_bytes(*length) as usize);
            let (check, after) = after.split_first_chunk::<4>().unwrap();
            assert_eq!(crc32(chunk), u32::from_be_bytes(*check));
            kinds.push(chunk[..4].to_vec());
            rest = after;
        }
        assert_eq!(kinds, [b"IHDR".to_vec(), b"IDAT".to_vec(), b"IEND".to_vec()]);
    }
}
