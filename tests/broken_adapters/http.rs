//! As much of HTTP/1.1 as a small adapter needs, with nothing done behind its back: a body is read when it is asked for.
use serde_json::Value;
use std::io::{self, Read, Write};
use std::net::TcpStream;

/// The head of a request.
#[derive(Debug)]
pub struct Head {
    pub method: String,
    target: String,
    headers: Vec<(String, String)>,
    /// The length of the body that follows.
    pub length: usize,
}

impl Head {
    /// The value of a header; the name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The target without its query.
    pub fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }
}

/// Reads the next head; `None` at the end of the connection, `Some(None)` for something that is none.
pub fn read_head(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<Option<Head>> {
    let end = loop {
        if let Some(end) = buffer.windows(4).position(|four| four == b"\r\n\r\n") {
            break end;
        }
        if buffer.len() > 64 * 1024 {
            return Some(None);
        }
        fill(stream, buffer)?;
    };
    let head: Vec<u8> = buffer.drain(..end + 4).collect();
    Some(parse(&String::from_utf8_lossy(&head)))
}

fn parse(head: &str) -> Option<Head> {
    let mut lines = head.trim_end().split("\r\n");
    let mut first = lines.next()?.split(' ');
    let (method, target) = (first.next()?.to_owned(), first.next()?.to_owned());
    let is_request = method.bytes().all(|byte| byte.is_ascii_uppercase())
        && target.starts_with('/')
        && first.next().is_some_and(|version| version.starts_with("HTTP/1."));
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length = length.map_or(Some(0), |(_, length)| length.parse().ok())?;
    is_request.then_some(Head { method, target, headers, length })
}

/// Reads the body that a head announces; `None` if the connection ends before.
pub fn read_body(stream: &mut TcpStream, buffer: &mut Vec<u8>, head: &Head) -> Option<Vec<u8>> {
    if head.length > buffer.len() && head.header("expect").is_some() {
        stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").ok()?;
    }
    while buffer.len() < head.length {
        fill(stream, buffer)?;
    }
    Some(buffer.drain(..head.length).collect())
}

fn fill(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<()> {
    let mut piece = [0; 65_536];
    match stream.read(&mut piece) {
        Ok(read @ 1..) => {
            buffer.extend_from_slice(&piece[..read]);
            Some(())
        }
        // The machine was halted meanwhile: reads that have a timeout tell that.
        Err(error) if error.kind() == io::ErrorKind::Interrupted => fill(stream, buffer),
        _ => None,
    }
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    status: u16,
    content_type: &'static str,
    body: String,
    closes: bool,
}

impl Answer {
    /// A JSON document.
    pub fn json(status: u16, body: &Value) -> Self {
        Self::text(status, "application/json", &body.to_string())
    }

    /// A text of some type.
    pub fn text(status: u16, content_type: &'static str, body: &str) -> Self {
        Self { status, content_type, body: body.to_owned(), closes: false }
    }

    /// Says that the connection ends.
    pub fn closing(self) -> Self {
        Self { closes: true, ..self }
    }

    /// Sends it.
    pub fn send(&self, stream: &mut TcpStream) -> io::Result<()> {
        let Self { status, content_type, body, closes } = self;
        let close = if *closes { "Connection: close\r\n" } else { "" };
        let length = body.len();
        stream.write_all(
            format!(
                "HTTP/1.1 {status} -\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n{close}\r\n{body}"
            )
            .as_bytes(),
        )
    }
}
