//! A third-party adapter server, which sends scripted answers and records requests.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use bytes::{BufMut as _, Bytes, BytesMut};
use http::{HeaderMap, Response};
use tokio::{net::TcpListener, runtime::Runtime};

/// The answer to a method: an encoded message, or a gRPC code and message.
pub(crate) type Answer = Result<Vec<u8>, (u8, &'static str)>;

pub(crate) struct Recorder {
    pub(crate) address: String,
    calls: Arc<Mutex<Vec<Recorded>>>,
    _runtime: Runtime,
}

#[derive(Clone, Debug)]
pub(crate) struct Recorded {
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) message: Bytes,
    pub(crate) connection: SocketAddr,
}

impl Recorder {
    pub(crate) fn start(answer: impl Fn(&str) -> Answer + Clone + Send + 'static) -> Self {
        Self::start_on("127.0.0.1:0", answer)
    }

    /// The same, on an address.
    pub(crate) fn start_on(address: &str, answer: impl Fn(&str) -> Answer + Clone + Send + 'static) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind(address)).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let calls = Arc::<Mutex<Vec<Recorded>>>::default();
        let recorded = calls.clone();
        runtime.spawn(async move {
            while let Ok((stream, peer)) = listener.accept().await {
                stream.set_nodelay(true).unwrap();
                let (answer, recorded) = (answer.clone(), recorded.clone());
                tokio::spawn(async move {
                    let mut connection = h2::server::handshake(stream).await.unwrap();
                    while let Some(Ok((request, respond))) = connection.accept().await {
                        let (answer, recorded) = (answer.clone(), recorded.clone());
                        tokio::spawn(async move {
                            let (head, mut body) = request.into_parts();
                            let path = head.uri.path().to_owned();
                            let mut received = BytesMut::new();
                            while let Some(data) = body.data().await {
                                let Ok(data) = data else { return };
                                let _ = body.flow_control().release_capacity(data.len());
                                received.extend_from_slice(&data);
                                while let Some(message) = next_message(&mut received) {
                                    recorded.lock().unwrap().push(Recorded {
                                        path: path.clone(),
                                        headers: head.headers.clone(),
                                        message,
                                        connection: peer,
                                    });
                                }
                            }
                            // It may block.
                            let answer = tokio::task::spawn_blocking(move || answer(&path)).await;
                            respond_with(respond, answer.unwrap());
                        });
                    }
                });
            }
        });
        Self { address, calls, _runtime: runtime }
    }

    /// The messages of the calls so far, in order.
    pub(crate) fn calls(&self) -> Vec<Recorded> {
        self.calls.lock().unwrap().clone()
    }
}

/// Takes a message that is complete.
fn next_message(received: &mut BytesMut) -> Option<Bytes> {
    let length = u32::from_be_bytes(received.get(1..5)?.try_into().unwrap()) as usize;
    (received.len() >= 5 + length).then(|| received.split_to(5 + length).freeze().slice(5..))
}

fn respond_with(mut respond: h2::server::SendResponse<Bytes>, answer: Answer) {
    let head = Response::builder().header("content-type", "application/grpc").body(()).unwrap();
    let mut stream = respond.send_response(head, false).unwrap();
    let (code, why) = match answer {
        Ok(message) => {
            let mut frame = BytesMut::new();
            frame.put_u8(0);
            frame.put_u32(message.len() as u32);
            frame.extend_from_slice(&message);
            stream.send_data(frame.freeze(), false).unwrap();
            (0, "")
        }
        Err(error) => error,
    };
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", u16::from(code).into());
    trailers.insert("grpc-message", why.parse().unwrap());
    stream.send_trailers(trailers).unwrap();
}
