//! A client that sends exactly the bytes it is told to and reads whole answers.
use super::CEILING;
use serde_json::Value;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

/// A request that is put together from parts; sent on a connection of its own or as bytes on another.
#[derive(Clone, Debug)]
pub struct Request {
    address: SocketAddr,
    method: String,
    target: String,
    version: &'static str,
    headers: Vec<(String, Vec<u8>)>,
    body: Option<Vec<u8>>,
}

impl Request {
    /// A request with `Host` and `Accept`, nothing else.
    pub fn new(address: SocketAddr, method: &str, target: &str) -> Self {
        Self {
            address,
            method: method.to_owned(),
            target: target.to_owned(),
            version: "HTTP/1.1",
            headers: vec![
                ("Host".to_owned(), address.to_string().into_bytes()),
                ("Accept".to_owned(), b"application/json".to_vec()),
            ],
            body: None,
        }
    }

    /// `HTTP/1.0`
    pub fn version(mut self, version: &'static str) -> Self {
        self.version = version;
        self
    }

    /// Sets a header in the place of any of that name.
    pub fn header(self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.without(name).add_header(name, value)
    }

    /// Adds a header beside any of that name.
    pub fn add_header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.headers.push((name.to_owned(), value.as_ref().to_vec()));
        self
    }

    /// Leaves a header out.
    pub fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        self
    }

    /// `Authorization: Bearer TOKEN`
    pub fn token(self, token: &[u8]) -> Self {
        self.header("Authorization", [b"Bearer ", token].concat())
    }

    /// A JSON body with its length.
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        let body = body.into();
        self = self.header("Content-Type", "application/json").header("Content-Length", body.len().to_string());
        self.body = Some(body);
        self
    }

    /// The same body in chunks of this size, without a length.
    pub fn chunked(mut self, body: &[u8], size: usize) -> Self {
        self = self
            .header("Content-Type", "application/json")
            .without("Content-Length")
            .header("Transfer-Encoding", "chunked");
        let mut chunks = Vec::new();
        for chunk in body.chunks(size) {
            chunks.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
            chunks.extend_from_slice(chunk);
            chunks.extend_from_slice(b"\r\n");
        }
        chunks.extend_from_slice(b"0\r\n\r\n");
        self.body = Some(chunks);
        self
    }

    /// The head alone.
    pub fn head_bytes(&self) -> Vec<u8> {
        let mut bytes = format!("{} {} {}\r\n", self.method, self.target, self.version).into_bytes();
        for (name, value) in &self.headers {
            bytes.extend_from_slice(name.as_bytes());
            bytes.extend_from_slice(b": ");
            bytes.extend_from_slice(value);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(b"\r\n");
        bytes
    }

    /// Head and body.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.head_bytes();
        bytes.extend_from_slice(self.body.as_deref().unwrap_or_default());
        bytes
    }

    /// Sends everything on a new connection, then reads the answer.
    pub fn send(&self) -> Response {
        let mut connection = self.open();
        if self.method == "HEAD" { connection.read_without_body() } else { connection.read() }
    }

    /// Sends everything on a new connection, which is the caller's.
    pub fn open(&self) -> Connection {
        let mut connection = Connection::to(self.address);
        // An early answer may already be there when writing fails; reading tells.
        let _ = connection.send(&self.head_bytes());
        let _ = connection.send(self.body.as_deref().unwrap_or_default());
        connection
    }
}

/// One connection.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    /// Connects.
    pub fn to(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(CEILING)).unwrap();
        stream.set_write_timeout(Some(CEILING)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, buffer: Vec::new() }
    }

    /// Writes all these bytes.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Writes as much of these bytes as is taken without waiting.
    pub fn send_what_is_taken(&mut self, bytes: &[u8]) {
        self.stream.set_nonblocking(true).unwrap();
        let mut rest = bytes;
        while let Ok(taken @ 1..) = self.stream.write(rest) {
            rest = &rest[taken..];
        }
        self.stream.set_nonblocking(false).unwrap();
    }

    /// Cuts the connection with a reset.
    pub fn reset(self) {
        let runtime = super::port::runtime();
        let _entered = runtime.enter();
        self.stream.set_nonblocking(true).unwrap();
        tokio::net::TcpStream::from_std(self.stream).unwrap().set_zero_linger().unwrap();
    }

    /// Says that nothing more will be written.
    pub fn half_close(&self) {
        // It may already have been cut from the other side; what is read next tells.
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// The next whole answer.
    pub fn read(&mut self) -> Response {
        self.try_read(true).expect("no whole answer came")
    }

    /// The next answer, to a request of which only the head is answered.
    pub fn read_without_body(&mut self) -> Response {
        self.try_read(false).expect("no whole answer came")
    }

    /// The next answer, if there is one.
    pub fn try_read(&mut self, with_body: bool) -> io::Result<Response> {
        let mut informational = Vec::new();
        loop {
            let mut response = self.read_head()?;
            if (100..200).contains(&response.status) {
                informational.push(response.status);
                continue;
            }
            response.informational = informational;
            if with_body {
                self.read_body(&mut response)?;
            }
            return Ok(response);
        }
    }

    /// Only the next head, which may be that of a `100 Continue`.
    pub fn read_head(&mut self) -> io::Result<Response> {
        let end = loop {
            if let Some(end) = self.buffer.windows(4).position(|four| four == b"\r\n\r\n") {
                break end;
            }
            self.fill()?;
        };
        let head: Vec<u8> = self.buffer.drain(..end + 4).collect();
        let head = String::from_utf8(head).map_err(io::Error::other)?;
        let mut lines = head.trim_end().split("\r\n");
        let mut first = lines.next().unwrap_or_default().splitn(3, ' ');
        let version = first.next().unwrap_or_default().to_owned();
        let status = first.next().and_then(|status| status.parse().ok());
        let status = status.ok_or_else(|| io::Error::other(format!("not a status line: {head}")))?;
        let headers = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        Ok(Response { version, status, headers, body: Vec::new(), informational: Vec::new() })
    }

    fn read_body(&mut self, response: &mut Response) -> io::Result<()> {
        if response.header("transfer-encoding").is_some() {
            loop {
                let line = loop {
                    if let Some(end) = self.buffer.windows(2).position(|two| two == b"\r\n") {
                        break end;
                    }
                    self.fill()?;
                };
                let size: Vec<u8> = self.buffer.drain(..line + 2).collect();
                let size =
                    usize::from_str_radix(String::from_utf8_lossy(&size).trim(), 16).map_err(io::Error::other)?;
                while self.buffer.len() < size + 2 {
                    self.fill()?;
                }
                response.body.extend(self.buffer.drain(..size));
                self.buffer.drain(..2);
                if size == 0 {
                    return Ok(());
                }
            }
        }
        if let Some(length) = response.header("content-length") {
            let length: usize = length.parse().map_err(io::Error::other)?;
            while self.buffer.len() < length {
                self.fill()?;
            }
            response.body = self.buffer.drain(..length).collect();
            return Ok(());
        }
        while self.fill().is_ok() {}
        response.body = std::mem::take(&mut self.buffer);
        Ok(())
    }

    fn fill(&mut self) -> io::Result<()> {
        let mut piece = [0; 65_536];
        let read = super::read_some(&mut self.stream, &mut piece)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.buffer.extend_from_slice(&piece[..read]);
        Ok(())
    }

    /// Whether an answer begins within `patience`; nothing is consumed.
    pub fn answers_within(&self, patience: Duration) -> bool {
        if !self.buffer.is_empty() {
            return true;
        }
        self.stream.set_read_timeout(Some(patience)).unwrap();
        let answers = matches!(self.stream.peek(&mut [0]), Ok(read) if read > 0);
        self.stream.set_read_timeout(Some(CEILING)).unwrap();
        answers
    }

    /// Whether the other side ends the connection (in order or by a reset) without another byte.
    pub fn ends(&mut self) -> bool {
        if !self.buffer.is_empty() {
            return false;
        }
        match super::read_some(&mut self.stream, &mut [0]) {
            Ok(read) => read == 0,
            Err(error) => !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut),
        }
    }

    /// After an answer: another request on this connection works, or the end was announced and comes.
    pub fn assert_usable_or_closed(&mut self, answer: &Response, next: &Request) {
        if answer.closes() {
            assert!(self.ends(), "an announced close did not come");
        } else {
            self.send(&next.bytes()).unwrap();
            assert_eq!(self.read().status, 200, "the next request on the connection");
        }
    }
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Response {
    /// `HTTP/1.1` or `HTTP/1.0`.
    pub version: String,
    /// The status.
    pub status: u16,
    /// The header lines; names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
    /// The statuses of the interim answers before it.
    pub informational: Vec<u16>,
}

impl Response {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Whether it announces that the connection ends.
    pub fn closes(&self) -> bool {
        self.version == "HTTP/1.0" || self.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"))
    }

    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("status {} with a body that is not JSON: {error}", self.status))
    }

    /// The reply's text.
    pub fn text(&self) -> String {
        let json = self.json();
        assert_eq!(self.status, 200, "{json}");
        json["choices"][0]["message"]["content"].as_str().expect("no content").to_owned()
    }
}
