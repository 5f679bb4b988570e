//! A client that sends the bytes that it gets, one by one.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use farside_testbed::limit;
use farside_viewer::page::Page;
use serde_json::{Value, json};

/// A server for one job.
pub(crate) fn serve(job: &str) -> Page {
    Page::start("127.0.0.1:0".parse().unwrap(), job, &[]).unwrap()
}

pub(crate) fn token(page: &Page) -> String {
    page.url().split_once('#').unwrap().1.to_owned()
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    /// The head as it came, in lower case.
    pub(crate) head: String,
    pub(crate) body: BufReader<TcpStream>,
}

/// Connects to a server.
pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    try_connect(address).unwrap()
}

fn try_connect(address: SocketAddr) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(limit()))?;
    stream.set_write_timeout(Some(limit()))?;
    Ok(stream)
}

/// Sends bytes and reads the head of the answer. There is none if the server closes.
pub(crate) fn send(address: SocketAddr, request: &[u8]) -> Option<Reply> {
    send_on(connect(address), request)
}

/// As [`send`], for a server that may have ended already: then there is no answer, either.
pub(crate) fn try_send(address: SocketAddr, request: &[u8]) -> Option<Reply> {
    send_on(try_connect(address).ok()?, request)
}

fn send_on(mut stream: TcpStream, request: &[u8]) -> Option<Reply> {
    // The server may close before it has read all.
    let _ = stream.write_all(request);
    let mut body = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if !matches!(body.read_line(&mut head), Ok(1..)) {
            return None;
        }
    }
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some(Reply { status, head: head.to_lowercase(), body })
}

/// A request with its question, and with further lines in its head.
pub(crate) fn request(first: &str, lines: &[&str], question: &str) -> Vec<u8> {
    let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
    format!("{first} HTTP/1.1\r\n{lines}Content-Length: {}\r\n\r\n{question}", question.len()).into_bytes()
}

/// Asks as the page does.
pub(crate) fn post(page: &Page, path: &str, question: &Value) -> Reply {
    let authorization = format!("Authorization: Bearer {}", token(page));
    let lines = [&format!("Host: {}", page.address()), authorization.as_str()].map(|line: &str| line.to_owned());
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    send(page.address(), &request(&format!("POST {path}"), &lines, &question.to_string())).unwrap()
}

/// The server's statistics.
pub(crate) fn counts(page: &Page) -> Value {
    let mut reply = post(page, "/ask", &json!({ "do": "server" }));
    let length = reply.head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    reply.body.read_exact(&mut body).unwrap();
    serde_json::from_slice(&body).unwrap()
}

/// The records of a stream.
pub(crate) struct Records {
    body: BufReader<TcpStream>,
    /// Bytes of the chunk that were not read yet.
    left: usize,
}

impl Records {
    pub(crate) fn of(reply: Reply) -> Self {
        assert_eq!(reply.status, 200, "{}", reply.head);
        assert!(reply.head.contains("transfer-encoding: chunked"), "{}", reply.head);
        Self { body: reply.body, left: 0 }
    }

    fn take(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        while bytes.len() < count {
            if self.left == 0 {
                let mut line = String::new();
                while line.trim().is_empty() {
                    line.clear();
                    assert!(self.body.read_line(&mut line).unwrap() > 0, "the stream has ended");
                }
                self.left = usize::from_str_radix(line.trim(), 16).unwrap();
                assert!(self.left > 0, "the stream has ended");
            }
            let part = self.left.min(count - bytes.len());
            let before = bytes.len();
            bytes.resize(before + part, 0);
            self.body.read_exact(&mut bytes[before..]).unwrap();
            self.left -= part;
        }
        bytes
    }

    /// The next record that is more than a sign of life.
    pub(crate) fn next(&mut self) -> (Value, Vec<u8>) {
        loop {
            let length = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap()) as usize;
            let lengths = self.take(8);
            let head = self.take(length(&lengths[..4]));
            let body = self.take(length(&lengths[4..]));
            let head: Value = serde_json::from_slice(&head).unwrap();
            if head != json!({}) {
                return (head, body);
            }
        }
    }
}
