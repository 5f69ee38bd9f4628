//! A model that calls a tool. Weir never offers one, but a front between it and the server may: here a small relay does.

use std::io::Write as _;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};

use serde_json::{Value, json};

use crate::common::{Builder, read_some, say, secret};
use crate::llama_server::{Launch, turn};

/// Puts a tool into every turn on its way to the server; passes everything else on as it is. Ends with the test's process.
fn relay_that_offers_a_tool(server: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for phone in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || relay(phone, server));
        }
    });
    address
}

fn relay(mut phone: TcpStream, server: SocketAddr) -> Option<()> {
    let mut request = Vec::new();
    let end = loop {
        if let Some(end) = request.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
        read_more(&mut phone, &mut request)?;
    };
    let head = String::from_utf8(request[..end].to_vec()).ok()?;
    let length =
        head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length:")?.trim().parse().ok());
    let length: usize = length.unwrap_or(0);
    while request.len() < end + length {
        read_more(&mut phone, &mut request)?;
    }
    let mut body = request[end..].to_vec();
    if head.starts_with("POST /v1/chat/completions ") {
        body = with_tool(&body).into_bytes();
    }
    let first_line = head.lines().next()?;
    let mut up = TcpStream::connect(server).ok()?;
    let head = format!(
        "{first_line}\r\nHost: {server}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    up.write_all(head.as_bytes()).ok()?;
    up.write_all(&body).ok()?;
    std::io::copy(&mut up, &mut phone).ok()?;
    phone.shutdown(Shutdown::Both).ok()
}

fn read_more(from: &mut TcpStream, to: &mut Vec<u8>) -> Option<()> {
    let mut piece = [0; 16_384];
    let read = read_some(from, &mut piece).ok().filter(|read| *read > 0)?;
    to.extend_from_slice(&piece[..read]);
    Some(())
}

fn with_tool(body: &[u8]) -> String {
    let mut body: Value = serde_json::from_slice(body).unwrap();
    let city = json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
    body["tools"] = json!([{"type": "function", "function": {"name": "get_weather", "parameters": city}}]);
    body.to_string()
}

#[test]
fn a_tool_call_alone_is_answered_as_not_available_and_the_second_answer_counts() {
    let server = Launch::chat().start();
    let relay = relay_that_offers_a_tool(server.address());
    let weir = Builder::new().upstream("relay", &format!("http://{relay}")).kind("llamacpp").start();
    let reply = turn(&weir, &say(secret("What is the weather?"))).assert_reply("It is sunny in Paris.");
    assert!(!reply.to_string().contains("tool_calls"));
    weir.wait_for_log("answer_tool_calls");
}
