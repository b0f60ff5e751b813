//! A scripted HTTP server on the local machine.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// An answer: status line, headers, body; `cut` sends only that many bytes of the body.
#[derive(Clone)]
pub struct Answer {
    pub status: &'static str,
    pub headers: Vec<(&'static str, String)>,
    pub body: Vec<u8>,
    pub cut: Option<usize>,
}

impl Answer {
    pub fn ok(body: &[u8]) -> Self {
        Self::status("200 OK", body)
    }
    pub fn status(status: &'static str, body: &[u8]) -> Self {
        Self { status, headers: Vec::new(), body: body.to_vec(), cut: None }
    }
    pub fn header(mut self, name: &'static str, value: impl ToString) -> Self {
        self.headers.push((name, value.to_string()));
        self
    }
    pub fn cut(mut self, bytes: usize) -> Self {
        self.cut = Some(bytes);
        self
    }
}

/// A request: path, and headers in lower case.
#[derive(Clone, Debug)]
pub struct Seen {
    pub path: String,
    pub headers: Vec<(String, String)>,
}

impl Seen {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

pub struct Server {
    pub url: String,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Server {
    /// Answers every request by the function, until the test's process ends.
    pub fn start(answer: impl Fn(&Seen) -> Answer + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = seen.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if let Some(request) = read(&stream) {
                    log.lock().unwrap().push(request.clone());
                    write(stream, &answer(&request));
                }
            }
        });
        Self { url, seen }
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }
}

fn read(stream: &TcpStream) -> Option<Seen> {
    let mut lines = BufReader::new(stream).lines();
    let first = lines.next()?.ok()?;
    let path = first.split(' ').nth(1)?.to_owned();
    let headers = lines
        .map_while(Result::ok)
        .take_while(|line| !line.is_empty())
        .filter_map(|line| {
            let (name, value) = line.split_once(':')?;
            Some((name.to_lowercase(), value.trim().to_owned()))
        })
        .collect();
    Some(Seen { path, headers })
}

fn write(mut stream: TcpStream, answer: &Answer) {
    let mut head = format!("HTTP/1.1 {}\r\nconnection: close\r\n", answer.status);
    head += &format!("content-length: {}\r\n", answer.body.len());
    for (name, value) in &answer.headers {
        head += &format!("{name}: {value}\r\n");
    }
    let sent = answer.cut.unwrap_or(answer.body.len());
    // The client may hang up first.
    let _ = stream.write_all(format!("{head}\r\n").as_bytes());
    let _ = stream.write_all(&answer.body[..sent]);
}
