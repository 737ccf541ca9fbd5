//! Many small calls at once, on many connections.

use std::{future::pending, iter, net::SocketAddr, sync::Arc, time::Duration};

use prost::Message as _;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpStream, tcp::OwnedReadHalf},
    task::JoinSet,
    time::sleep,
};

use super::{Expectation, connections::hold};
use crate::{client::framed, honest::denied, server::Addresses};

/// The calls that each connection begins at once.
const CALLS: u32 = 1_000;

/// How often, how many connections begin how many calls each at once, and with how many header fields more.
#[derive(Clone, Copy)]
pub(super) struct Burst {
    times: u32,
    connections: u32,
    calls: u32,
    fields: usize,
}

impl Burst {
    pub(super) const fn of(connections: u32) -> Self {
        Self { times: 1, connections, calls: CALLS, fields: 0 }
    }

    pub(super) const fn calls(self, calls: u32) -> Self {
        Self { calls, ..self }
    }

    pub(super) const fn times(self, times: u32) -> Self {
        Self { times, ..self }
    }

    pub(super) const fn fields(self, fields: usize) -> Self {
        Self { fields, ..self }
    }

    /// Opens the connections, then sends all calls at once, and reads what is answered.
    pub(super) async fn run(self, addresses: Addresses, sent: &mut u64) -> anyhow::Result<Expectation> {
        let mut connections = Vec::new();
        for _ in 0..self.connections {
            connections.push(connect(addresses.grpc, self.fields > 0).await?);
        }
        let bursts: Arc<[_]> = (0..self.times).map(|time| self.encode(time * self.calls)).collect();
        let mut tasks = JoinSet::new();
        for connection in connections {
            *sent += bursts.iter().map(|calls| calls.len() as u64).sum::<u64>();
            let (reader, mut writer) = connection.into_split();
            let bursts = bursts.clone();
            tasks.spawn(discard(reader));
            tasks.spawn(async move {
                for calls in bursts.iter() {
                    // The server may read slowly, or end the connection.
                    let _ = writer.write_all(calls).await;
                    sleep(Duration::from_secs(1)).await;
                }
                pending().await
            });
        }
        hold(tasks).await
    }

    /// The frames of all calls of a connection, `before` of which there were already.
    fn encode(self, before: u32) -> Vec<u8> {
        let message = framed(&denied().encode_to_vec());
        let headers = [&call_headers()[..], &vec![NEWEST_FIELD; self.fields]].concat();
        (before..before + self.calls)
            .flat_map(|call| {
                let stream = 2 * call + 3;
                [frame(HEADERS, END_HEADERS, stream, &headers), frame(DATA, END_STREAM, stream, &message)]
            })
            .flatten()
            .collect()
    }
}

// Of RFC 9113, section 6, and RFC 7541.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
/// The index of the newest field of the dynamic table.
const NEWEST_FIELD: u8 = 0x80 | 62;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or_default().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Connects, with windows for all answers. If asked, the first call puts a field into the dynamic table.
async fn connect(address: SocketAddr, with_field: bool) -> anyhow::Result<TcpStream> {
    let mut stream = TcpStream::connect(address).await?;
    let increment = (1_u32 << 30).to_be_bytes();
    let mut begin = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    begin.extend(frame(SETTINGS, 0, 0, &[]));
    begin.extend(frame(WINDOW_UPDATE, 0, 0, &increment));
    if with_field {
        let field = b"\x40\x01a\x01b";
        let headers = [&call_headers()[..], field].concat();
        begin.extend(frame(HEADERS, END_HEADERS | END_STREAM, 1, &headers));
    }
    stream.write_all(&begin).await?;
    Ok(stream)
}

/// The encoded header fields of a check, none of which goes into the dynamic table.
fn call_headers() -> Vec<u8> {
    let text = |text: &str| iter::once(text.len() as u8).chain(text.bytes()).collect::<Vec<_>>();
    [
        // `:method: POST` and `:scheme: http`
        &[0x83, 0x86][..],
        &[&[0x04][..], &text("/istio.mixer.v1.Mixer/Check")].concat(),
        &[&[0x01][..], &text("localhost")].concat(),
        &[&[0x0f, 0x10][..], &text("application/grpc")].concat(),
        &[&[0x00][..], &text("te"), &text("trailers")].concat(),
    ]
    .concat()
}

/// Reads until the server ends the connection.
async fn discard(mut reader: OwnedReadHalf) {
    let mut answers = vec![0; 16 << 10];
    while let Ok(1..) = reader.read(&mut answers).await {}
}
