//! A client that costs less than the server it measures: raw HTTP/2, and the same bytes in every request.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use tokio::net::TcpStream;

const CONNECTIONS: usize = 4;
const STREAMS: usize = 32;

/// Latencies in nanoseconds of all calls answered within a time.
pub(super) async fn load(address: SocketAddr, path: &'static str, frame: Bytes, time: Duration) -> Vec<u64> {
    let stop = Arc::new(AtomicBool::new(false));
    let mut streams = Vec::new();
    for _ in 0..CONNECTIONS {
        let caller = Caller::connect(address, path, frame.clone()).await;
        for _ in 0..STREAMS {
            let call = caller.clone();
            let stop = stop.clone();
            streams.push(tokio::spawn(async move {
                let mut latencies = Vec::with_capacity(1 << 14);
                while !stop.load(Relaxed) {
                    let start = Instant::now();
                    call.once().await;
                    latencies.push(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX));
                }
                latencies
            }));
        }
    }
    tokio::time::sleep(time).await;
    stop.store(true, Relaxed);
    let mut all = Vec::new();
    for stream in streams {
        all.extend(stream.await.expect("a call ended"));
    }
    all
}

/// Sends the same request on a connection.
#[derive(Clone)]
pub(super) struct Caller {
    client: h2::client::SendRequest<Bytes>,
    path: &'static str,
    frame: Bytes,
}

impl Caller {
    pub(super) async fn connect(address: SocketAddr, path: &'static str, frame: Bytes) -> Self {
        let stream = TcpStream::connect(address).await.expect("the server listens");
        stream.set_nodelay(true).expect("a TCP stream");
        let (client, connection) = h2::client::Builder::new()
            .initial_window_size(1 << 20)
            .initial_connection_window_size(16 << 20)
            .handshake::<_, Bytes>(stream)
            .await
            .expect("HTTP/2");
        tokio::spawn(async move {
            // Ends when the last stream does.
            let _ = connection.await;
        });
        Self { client, path, frame }
    }

    pub(super) async fn once(&self) {
        let mut client = self.client.clone().ready().await.expect("the connection lives");
        let request = http::Request::post(format!("http://localhost{}", self.path))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(())
            .expect("a request");
        let (response, mut body) = client.send_request(request, false).expect("a stream");
        body.send_data(self.frame.clone(), true).expect("sent");
        let response = response.await.expect("an answer");
        if let Some(status) = response.headers().get("grpc-status") {
            panic!("{}: {status:?} {:?}", self.path, response.headers().get("grpc-message"));
        }
        let mut body = response.into_body();
        while let Some(data) = body.data().await {
            let length = data.expect("a whole answer").len();
            body.flow_control().release_capacity(length).expect("received just now");
        }
        let trailers = body.trailers().await.expect("trailers").expect("a status");
        assert_eq!(trailers.get("grpc-status").map(|status| status.as_bytes()), Some(&b"0"[..]));
    }
}
