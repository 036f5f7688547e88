//! As little of HTTP as the tests need, by hand: a client library would hide what is on the wire.

use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

pub struct Answer {
    pub status: u16,
    pub headers: String,
    pub body: Vec<u8>,
    /// False where the connection broke before the end that was promised.
    pub whole: bool,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&self.body)))
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let lines = self.headers.lines().filter_map(|line| line.split_once(':'));
        lines.filter(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim()).next()
    }

    /// The word for programs in an error of OpenAI's form.
    pub fn code(&self) -> String {
        let error = &self.json()["error"];
        assert!(error["message"].is_string() && error["type"].is_string(), "{error}");
        error["code"].as_str().unwrap().to_owned()
    }
}

/// A request under way: its answer's head has come, its body may still be on the way.
pub struct Call {
    pub status: u16,
    pub headers: String,
    reader: BufReader<TcpStream>,
}

pub fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}

pub fn request(method: &str, path: &str, headers: &[&str], body: &[u8]) -> Vec<u8> {
    let mut head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n", body.len());
    headers.iter().for_each(|header| head += &format!("{header}\r\n"));
    [head.as_bytes(), b"\r\n", body].concat()
}

pub fn call(address: &str, request: &[u8]) -> Call {
    let mut stream = connect(address);
    stream.write_all(request).unwrap();
    Call::read_head(stream)
}

impl Call {
    pub fn read_head(stream: TcpStream) -> Self {
        let (mut reader, mut headers, mut status) = (BufReader::new(stream), String::new(), String::new());
        reader.read_line(&mut status).unwrap();
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap() == 0 || line == "\r\n" {
                break;
            }
            headers += &line.replace("\r\n", "\n");
        }
        let status = status.split(' ').nth(1).unwrap_or_else(|| panic!("no answer: {status:?}")).parse().unwrap();
        Call { status, headers, reader }
    }

    /// One chunk of a streamed answer; empty at its end, none where it broke.
    pub fn chunk(&mut self) -> Option<Vec<u8>> {
        let mut size = String::new();
        self.reader.read_line(&mut size).ok()?;
        let size = usize::from_str_radix(size.trim(), 16).ok()?;
        let mut bytes = vec![0; size + 2];
        self.reader.read_exact(&mut bytes).ok()?;
        bytes.truncate(size);
        Some(bytes)
    }

    pub fn finish(mut self) -> Answer {
        let mut answer = Answer { status: self.status, headers: self.headers.clone(), body: Vec::new(), whole: false };
        if let Some(length) = answer.header("content-length") {
            answer.body = vec![0; length.parse().unwrap()];
            answer.whole = self.reader.read_exact(&mut answer.body).is_ok();
            return answer;
        }
        while let Some(chunk) = self.chunk() {
            if chunk.is_empty() {
                answer.whole = true;
                break;
            }
            answer.body.extend(chunk);
        }
        answer
    }
}
