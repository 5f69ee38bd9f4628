//! What the scripted model server keeps of a request, and how it reads one.
use serde_json::Value;
use std::io::Read;
use std::net::TcpStream;
use std::time::Instant;

/// A request as it arrived.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// Which connection it came on, counted from 0.
    pub connection: usize,
    /// The method.
    pub method: String,
    /// The target, with the query.
    pub target: String,
    /// The header lines, in order.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
    /// When it was complete.
    pub arrived: Instant,
    /// When the other side was seen to have closed the connection.
    pub closed: Option<Instant>,
}

impl Recorded {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("Weir sent a body that is not JSON")
    }

    /// The messages of a turn.
    pub fn messages(&self) -> Vec<Value> {
        self.json()["messages"].as_array().expect("no messages were sent").clone()
    }

    /// Whether it asks for a turn.
    pub fn is_chat(&self) -> bool {
        self.target == "/v1/chat/completions" || self.target == "/api/chat"
    }
}

/// Reads the next request of a connection; `None` at its end.
pub fn read_request(connection: usize, stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<Recorded> {
    let end = loop {
        if let Some(end) = buffer.windows(4).position(|four| four == b"\r\n\r\n") {
            break end;
        }
        fill(stream, buffer)?;
    };
    let head: Vec<u8> = buffer.drain(..end + 4).collect();
    let head = String::from_utf8_lossy(&head).into_owned();
    let mut lines = head.trim_end().split("\r\n");
    let mut first = lines.next()?.split(' ');
    let (method, target) = (first.next()?.to_owned(), first.next()?.to_owned());
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
        .collect();
    let mut request =
        Recorded { connection, method, target, headers, body: Vec::new(), arrived: Instant::now(), closed: None };
    if request.header("transfer-encoding").is_some() {
        loop {
            let line = loop {
                if let Some(end) = buffer.windows(2).position(|two| two == b"\r\n") {
                    break end;
                }
                fill(stream, buffer)?;
            };
            let size: Vec<u8> = buffer.drain(..line + 2).collect();
            let size = usize::from_str_radix(std::str::from_utf8(&size).ok()?.trim(), 16).ok()?;
            while buffer.len() < size + 2 {
                fill(stream, buffer)?;
            }
            request.body.extend(buffer.drain(..size));
            buffer.drain(..2);
            if size == 0 {
                break;
            }
        }
    } else if let Some(length) = request.header("content-length") {
        let length: usize = length.parse().ok()?;
        while buffer.len() < length {
            fill(stream, buffer)?;
        }
        request.body = buffer.drain(..length).collect();
    }
    request.arrived = Instant::now();
    Some(request)
}

fn fill(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<()> {
    let mut piece = [0; 65_536];
    match super::read_some(stream, &mut piece) {
        Ok(read @ 1..) => {
            buffer.extend_from_slice(&piece[..read]);
            Some(())
        }
        _ => None,
    }
}
