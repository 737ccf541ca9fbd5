//! A server whose treatment of each call a test scripts, down to the frames.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use h2::{Reason, server::SendResponse};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use prost::Message;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::{Semaphore, mpsc},
};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{Port, port};

/// A call as it came in.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    /// The connection, counted from 1.
    pub(super) connection: usize,
    pub(super) head: Arc<Request<()>>,
    /// The whole body, prefix and all.
    pub(super) body: Bytes,
}

impl Seen {
    pub(super) fn path(&self) -> &str {
        self.head.uri().path()
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.head.headers().get(name).map(|value| value.to_str().unwrap())
    }

    pub(super) fn message<M: Message + Default>(&self) -> M {
        M::decode(&self.body[5..]).unwrap()
    }
}

/// The treatment of a call.
#[allow(clippy::large_enum_variant)] // made once a call
#[derive(Clone, Debug)]
pub(super) enum Act {
    /// A head, pieces of a body, trailers; no trailers end it with the last piece.
    Answer(Head, Vec<Bytes>, Option<HeaderMap>),
    Reset(Reason),
    /// A head and the first bytes of an answer, then the connection goes.
    CutAnswer,
    /// The connection goes.
    Cut,
    /// Something, once it is permitted.
    Once(Arc<Semaphore>, Box<Act>),
    /// No answer. The reason is sent here when the client gives up.
    Hang(mpsc::Sender<Reason>),
}

#[derive(Clone, Debug)]
pub(super) struct Head {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
}

pub(super) fn headers(entries: &[(&'static str, &str)]) -> HeaderMap {
    let entry = |(name, value): &(&'static str, &str)| {
        (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
    };
    entries.iter().map(entry).collect()
}

pub(super) fn grpc_head() -> Head {
    Head { status: 200, headers: headers(&[("content-type", "application/grpc")]) }
}

pub(super) fn frame(message: &[u8]) -> Bytes {
    [&[0][..], &(message.len() as u32).to_be_bytes(), message].concat().into()
}

impl Act {
    pub(super) fn ok(message: &[u8]) -> Self {
        Self::Answer(grpc_head(), vec![frame(message)], Some(headers(&[("grpc-status", "0")])))
    }

    pub(super) fn message(message: &impl Message) -> Self {
        Self::ok(&message.encode_to_vec())
    }

    /// An error in the head.
    pub(super) fn error(code: &str, message: &str) -> Self {
        let mut head = grpc_head();
        head.headers.extend(headers(&[("grpc-status", code), ("grpc-message", message)]));
        Self::Answer(head, Vec::new(), None)
    }
}

/// Accepts connections; ends them when it is dropped.
pub(super) struct Scripted {
    pub(super) address: SocketAddr,
    connections: Arc<AtomicUsize>,
    open: Arc<AtomicUsize>,
    seen: mpsc::Receiver<Seen>,
    stop: Option<DropGuard>,
}

impl Scripted {
    pub(super) async fn start(script: impl Fn(&Seen) -> Act + Send + Sync + 'static) -> Self {
        Self::on(&port(), script).await
    }

    pub(super) async fn on(port: &Port, script: impl Fn(&Seen) -> Act + Send + Sync + 'static) -> Self {
        Self::over(port, script, async |stream| Some(stream)).await
    }

    /// `wrap` makes what HTTP/2 runs over of a TCP stream: TLS.
    pub(super) async fn over<S, F>(
        port: &Port,
        script: impl Fn(&Seen) -> Act + Send + Sync + 'static,
        wrap: impl Fn(TcpStream) -> F + Send + Sync + 'static,
    ) -> Self
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        F: Future<Output = Option<S>> + Send + 'static,
    {
        let address = port.address;
        let listener = listen(address).await;
        let stop = CancellationToken::new();
        let (report, seen) = mpsc::channel(10_000);
        let (connections, open) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (script, wrap) = (Arc::new(script), Arc::new(wrap));
        let (counted, stopped, alive) = (connections.clone(), stop.clone(), open.clone());
        let accept = async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let connection = counted.fetch_add(1, SeqCst) + 1;
                let (script, wrap, report) = (script.clone(), wrap.clone(), report.clone());
                let (stopped, alive) = (stopped.clone(), alive.clone());
                tokio::spawn(async move {
                    alive.fetch_add(1, SeqCst);
                    let serve = async {
                        let Some(stream) = wrap(stream).await else { return };
                        serve(stream, connection, &*script, &report).await;
                    };
                    tokio::select! {
                        () = serve => {}
                        () = stopped.cancelled() => {}
                    }
                    alive.fetch_sub(1, SeqCst);
                });
            }
        };
        let stopped = stop.clone();
        tokio::spawn(async move { stopped.run_until_cancelled(accept).await });
        Self { address, connections, open, seen, stop: Some(stop.drop_guard()) }
    }

    /// Ends it and its connections.
    pub(super) async fn stop(&mut self) {
        self.stop = None;
        super::until(async || self.open() == 0).await;
    }

    /// How many connections there were.
    pub(super) fn connections(&self) -> usize {
        self.connections.load(SeqCst)
    }

    /// How many connections there are.
    pub(super) fn open(&self) -> usize {
        self.open.load(SeqCst)
    }

    /// The next call, waited for.
    pub(super) async fn next(&mut self) -> Seen {
        super::soon(self.seen.recv()).await.unwrap()
    }

    /// The calls since the last check.
    pub(super) fn rest(&mut self) -> Vec<Seen> {
        std::iter::from_fn(|| self.seen.try_recv().ok()).collect()
    }
}

/// Listens, also where a server was just dropped.
async fn listen(address: SocketAddr) -> TcpListener {
    super::soon(async {
        loop {
            match TcpListener::bind(address).await {
                Ok(listener) => return listener,
                Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
            }
        }
    })
    .await
}

async fn serve<S>(
    stream: S,
    connection: usize,
    script: &(dyn Fn(&Seen) -> Act + Send + Sync),
    report: &mpsc::Sender<Seen>,
) where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let Ok(mut http) = h2::server::handshake(stream).await else { return };
    // Streams held open, whose clients wait or have gone.
    let mut held = Vec::new();
    while let Some(Ok((request, mut respond))) = http.accept().await {
        let (head, mut incoming) = request.into_parts();
        // The connection has to be driven while a body comes in.
        let body = tokio::select! {
            biased;
            body = whole(&mut incoming) => body,
            _ = std::future::poll_fn(|cx| http.poll_closed(cx)) => return,
        };
        let seen = Seen { connection, head: Arc::new(Request::from_parts(head, ())), body };
        let mut act = script(&seen);
        let _ = report.try_send(seen);
        if let Act::Once(permitted, then) = act {
            tokio::select! {
                permit = permitted.acquire() => permit.unwrap().forget(),
                _ = std::future::poll_fn(|cx| http.poll_closed(cx)) => return,
            }
            act = *then;
        }
        match act {
            Act::Once(..) => unreachable!("once is enough"),
            Act::Answer(head, pieces, trailers) => answer(&mut respond, head, pieces, trailers),
            Act::Reset(reason) => respond.send_reset(reason),
            Act::Cut => return,
            Act::CutAnswer => {
                let response =
                    Response::builder().header("content-type", "application/grpc").body(()).unwrap();
                let mut stream = respond.send_response(response, false).unwrap();
                stream.send_data(Bytes::from_static(b"\0\0\0\0\x09half"), false).unwrap();
                // Until the written data has been sent.
                let flushed = tokio::time::sleep(Duration::from_millis(20));
                tokio::select! {
                    _ = std::future::poll_fn(|cx| http.poll_closed(cx)) => {}
                    () = flushed => {}
                }
                return;
            }
            Act::Hang(resets) => {
                held.push(tokio::spawn(async move {
                    if let Ok(reason) = std::future::poll_fn(|cx| respond.poll_reset(cx)).await {
                        let _ = resets.send(reason).await;
                    }
                }));
            }
        }
    }
}

async fn whole(incoming: &mut h2::RecvStream) -> Bytes {
    let mut body = BytesMut::new();
    while let Some(Ok(data)) = incoming.data().await {
        incoming.flow_control().release_capacity(data.len()).unwrap();
        body.extend_from_slice(&data);
    }
    body.freeze()
}

fn answer(
    respond: &mut SendResponse<Bytes>,
    head: Head,
    mut pieces: Vec<Bytes>,
    trailers: Option<HeaderMap>,
) {
    let mut response = Response::builder().status(head.status).body(()).unwrap();
    *response.headers_mut() = head.headers;
    let last = pieces.pop();
    let mut stream = respond.send_response(response, last.is_none() && trailers.is_none()).unwrap();
    for piece in pieces {
        stream.send_data(piece, false).unwrap();
    }
    if let Some(last) = last {
        stream.send_data(last, trailers.is_none()).unwrap();
    }
    if let Some(trailers) = trailers {
        stream.send_trailers(trailers).unwrap();
    }
}
