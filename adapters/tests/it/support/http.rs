//! An HTTP/1.1 client that returns raw responses, and an upstream that echoes requests.

use std::{
    io::{BufRead, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    time::Duration,
};

/// A response as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct HttpResponse {
    pub(crate) status: u16,
    /// Names in lower case, in their order.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl HttpResponse {
    /// The values of a header.
    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        self.headers.iter().filter(|(known, _)| known == name).map(|(_, value)| value.as_str()).collect()
    }

    /// The only value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        match self.all(name)[..] {
            [] => None,
            [value] => Some(value),
            _ => panic!("header {name} is there more than once: {self:?}"),
        }
    }
}

/// Sends a request with further headers.
pub(crate) fn request(address: &str, method: &str, path: &str, headers: &[&str]) -> HttpResponse {
    raw(address, &head(method, path, headers))
}

/// The head of a request with further headers.
pub(crate) fn head(method: &str, path: &str, headers: &[&str]) -> String {
    let mut text = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n");
    if !headers.iter().any(|header| header.starts_with("host:")) {
        text.push_str("host: shop.example.com\r\n");
    }
    headers.iter().for_each(|header| text.push_str(&format!("{header}\r\n")));
    text + "\r\n"
}

/// Sends a request as it is.
pub(crate) fn raw(address: &str, request: &str) -> HttpResponse {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    read_response(&mut BufReader::new(stream))
}

/// A connection for several requests.
pub(crate) struct HttpConnection(BufReader<TcpStream>);

impl HttpConnection {
    pub(crate) fn open(address: &str) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        Self(BufReader::new(stream))
    }

    pub(crate) fn get(&mut self, path: &str, headers: &[&str]) -> HttpResponse {
        let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
        let request = format!("GET {path} HTTP/1.1\r\nhost: shop.example.com\r\n{headers}\r\n");
        self.0.get_mut().write_all(request.as_bytes()).unwrap();
        read_response(&mut self.0)
    }
}

pub(crate) fn read_response(stream: &mut impl BufRead) -> HttpResponse {
    let (first, headers) = read_head(stream).expect("a response");
    let status = first.split(' ').nth(1).unwrap().parse().unwrap();
    let header =
        |name: &str| headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
    let mut body = Vec::new();
    match (header("content-length"), header("transfer-encoding")) {
        (Some(length), _) => {
            body = vec![0; length.parse().unwrap()];
            stream.read_exact(&mut body).unwrap();
        }
        (None, Some("chunked")) => loop {
            let mut line = String::new();
            stream.read_line(&mut line).unwrap();
            let mut chunk = vec![0; usize::from_str_radix(line.trim(), 16).unwrap() + 2];
            stream.read_exact(&mut chunk).unwrap();
            if chunk.len() == 2 {
                break;
            }
            body.extend_from_slice(&chunk[..chunk.len() - 2]);
        },
        _ => drop(stream.read_to_end(&mut body).unwrap()),
    }
    HttpResponse { status, headers, body: String::from_utf8(body).unwrap() }
}

type Head = (String, Vec<(String, String)>);

fn read_head(stream: &mut impl BufRead) -> Option<Head> {
    let mut line = || {
        let mut line = String::new();
        (stream.read_line(&mut line).ok()? > 0).then(|| line.trim_end().to_owned())
    };
    let first = line()?;
    let mut headers = Vec::new();
    loop {
        match line()? {
            end if end.is_empty() => return Some((first, headers)),
            header => {
                let (name, value) = header.split_once(':').unwrap();
                headers.push((name.to_lowercase(), value.trim().to_owned()));
            }
        }
    }
}

/// An upstream that answers 200 with the head of the request as the body: a line for the request and one for each header.
pub(crate) fn echo() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut stream = BufReader::new(stream);
                while let Some((first, headers)) = read_head(&mut stream) {
                    let length = headers.iter().find(|(name, _)| name == "content-length");
                    let mut body = vec![0; length.map_or(0, |(_, length)| length.parse().unwrap())];
                    if stream.read_exact(&mut body).is_err() {
                        return;
                    }
                    let mut head = format!("{first}\n");
                    headers.iter().for_each(|(name, value)| head.push_str(&format!("{name}: {value}\n")));
                    let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{head}", head.len());
                    if stream.get_mut().write_all(answer.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}
