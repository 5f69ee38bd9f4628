//! A model server that reads a request to its end, thinks for a while, and answers: what is in flight meanwhile can be measured.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use super::fixtures::{MODEL, plain_answer};

/// How long it thinks.
const THINKS: Duration = Duration::from_millis(1500);

/// Starts it; it ends with the program.
pub fn start() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || answer(stream));
        }
    });
    address
}

fn answer(stream: TcpStream) -> Option<()> {
    let mut reader = BufReader::with_capacity(256 * 1024, stream);
    loop {
        let mut first = String::new();
        reader.read_line(&mut first).ok().filter(|read| *read > 0)?;
        let mut length = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).ok()?;
            match line.split_once(':') {
                Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                    length = value.trim().parse().ok()?
                }
                Some(_) => {}
                None => break,
            }
        }
        let body = if first.contains(" /v1/models ") {
            format!(r#"{{"object":"list","data":[{{"id":"{MODEL}","object":"model"}}]}}"#)
        } else {
            std::io::copy(&mut reader.by_ref().take(length), &mut std::io::sink()).ok()?;
            std::thread::sleep(THINKS);
            plain_answer()
        };
        let head =
            format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n", body.len());
        reader.get_mut().write_all(&[head.as_bytes(), body.as_bytes()].concat()).ok()?;
    }
}
