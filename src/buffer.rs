//! Buffers that a peer fills, in such a way that what a large one took goes back to the system as soon as it is dropped.

use bytes::{BufMut as _, BytesMut};

/// From this size on glibc asks the system for memory that is for one allocation alone (mallopt(3), `M_MMAP_THRESHOLD`).
const LARGE: usize = 128 * 1024;

/// When one of up to 32 MiB ends, glibc raises that threshold to its size: the next ones are cut from its heaps, which keep tens
/// of MiB a thread for good. A larger one does not. Memory that is reserved and never touched costs nothing but addresses.
const NEVER_KEPT: usize = 33 * 1024 * 1024;

/// Makes room for `more` bytes behind those that are there.
pub fn make_room(buffer: &mut BytesMut, more: usize) {
    let total = buffer.len() + more;
    if total > LARGE && buffer.capacity() < total {
        buffer.reserve(total.max(NEVER_KEPT) - buffer.len());
    } else {
        buffer.reserve(more);
    }
}

/// Puts these bytes behind those that are there.
pub fn append(buffer: &mut BytesMut, bytes: &[u8]) {
    make_room(buffer, bytes.len());
    buffer.put_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_buffer_is_as_large_as_it_has_to_be_and_a_large_one_larger_than_any_that_is_kept() {
        let mut buffer = BytesMut::new();
        append(&mut buffer, &[1; 1000]);
        assert!(buffer.capacity() < LARGE);
        append(&mut buffer, &[2; LARGE]);
        assert!(buffer.capacity() >= NEVER_KEPT);
        let at = buffer.as_ptr();
        append(&mut buffer, &[3; LARGE * 10]);
        assert_eq!(at, buffer.as_ptr(), "it was copied");
        make_room(&mut buffer, NEVER_KEPT * 2);
        assert!(buffer.capacity() >= NEVER_KEPT * 2);
        assert_eq!(buffer.len(), 1000 + LARGE + LARGE * 10);
        assert_eq!((buffer[999], buffer[1000], buffer[1000 + LARGE]), (1, 2, 3));
    }
}
