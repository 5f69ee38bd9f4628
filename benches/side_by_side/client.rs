//! One kept-alive connection of a phone, as bare as can be: what it costs itself is the same for everybody.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// The token that Weir is given; the others do not look at it.
pub const TOKEN: &str = "side-by-side-0123456789abcdef0123456789abcdef";

/// No answer takes longer than this.
const CEILING: Duration = Duration::from_secs(60);

/// A whole request with this body.
pub fn request(body: &[u8]) -> Vec<u8> {
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

/// A connection that is used again and again.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    /// Connects.
    pub fn to(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("a server listens");
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(CEILING)).unwrap();
        Connection { stream, buffer: Vec::with_capacity(64 * 1024) }
    }

    /// Sends a request and reads its answer to the end; panics unless it is a 200.
    pub fn ask(&mut self, request: &[u8]) -> &[u8] {
        self.stream.write_all(request).expect("the server takes the request");
        self.buffer.clear();
        let mut piece = [0; 64 * 1024];
        let mut end = None;
        while end != Some(self.buffer.len()) {
            let read = self.stream.read(&mut piece).expect("the server answers in time");
            assert!(read > 0, "the connection ended inside an answer: {}", String::from_utf8_lossy(&self.buffer));
            self.buffer.extend_from_slice(&piece[..read]);
            end = end.or_else(|| end_of_answer(&self.buffer));
            assert!(end.is_none_or(|end| end >= self.buffer.len()), "more than one answer came");
        }
        assert!(self.buffer.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&self.buffer));
        &self.buffer
    }
}

/// Where the answer ends whose head is in `buffer`, if it is whole.
fn end_of_answer(buffer: &[u8]) -> Option<usize> {
    let end = memchr::memmem::find(buffer, b"\r\n\r\n")? + 4;
    let head = std::str::from_utf8(&buffer[..end]).expect("a head in ASCII");
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    Some(end + length.expect("an answer with a Content-Length"))
}
