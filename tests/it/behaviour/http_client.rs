//! The HTTP client of a handler.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use mixer_adapter::{
    Adapter, AdapterError, Call, Check, Code, Context, Handle,
    template::{ListEntry, listentry},
    testing::{self, FakeHandler, FakeMixer},
};
use test_adapters::params::bystander::Params;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
};

/// Requests the path that is the value of each call, within a second if it is `/silent`.
struct Requesting {
    context: Context,
    service: String,
}

impl Adapter for Requesting {
    const NAME: &str = "requesting";
    const DESCRIPTION: &str = "Requests what it is called with.";
    type Config = Params;
    type Templates = (ListEntry,);

    async fn open(params: Params, context: Context) -> Result<Self, AdapterError> {
        Ok(Self { context, service: params.ledger })
    }
}

impl Handle<ListEntry> for Requesting {
    async fn handle(&self, call: Call<listentry::InstanceMsg>) -> Result<Check, AdapterError> {
        let path = call.value.as_ref().map(ToString::to_string).unwrap_or_default();
        let limit = Duration::from_secs(if path == "/silent" { 1 } else { 60 });
        let request = self.context.http().get(&format!("{}{path}", self.service)).timeout(limit);
        request.send().await?.success()?;
        Ok(Check::allow())
    }
}

/// A service that counts its connections, and a handler that requests it.
async fn start() -> (Arc<AtomicUsize>, FakeHandler) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let ledger = format!("http://{}", listener.local_addr().unwrap());
    let connections = Arc::<AtomicUsize>::default();
    let count = connections.clone();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            count.fetch_add(1, SeqCst);
            tokio::spawn(serve(stream));
        }
    });
    (connections, FakeMixer::with::<Requesting>().params(testing::Params::message(&Params { ledger })))
}

/// Answers the requests of a connection, except `/silent`.
async fn serve(stream: TcpStream) {
    let mut stream = BufReader::new(stream);
    let mut head = String::new();
    while stream.read_line(&mut head).await.unwrap_or_default() > 0 {
        if !head.ends_with("\r\n\r\n") {
            continue;
        }
        if !head.starts_with("GET /silent ") {
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
        }
        head.clear();
    }
}

fn path(path: &str) -> listentry::InstanceMsg {
    listentry::InstanceMsg { value: Some(path.into()), ..Default::default() }
}

#[tokio::test]
async fn requests_share_connections() {
    let (connections, handler) = start().await;
    for _ in 0..50 {
        handler.check::<ListEntry>(path("/")).await.expect_allowed();
    }
    // A request may find the connection of the one before not ready yet, and add another one.
    let count = connections.load(SeqCst);
    assert!((1..=8).contains(&count), "{count} connections");
}

#[tokio::test]
async fn a_request_that_is_not_answered_in_time_leaves_its_connection_to_nobody() {
    let (connections, handler) = start().await;
    handler.check::<ListEntry>(path("/silent")).await.expect_error(Code::Unavailable, "no answer within 1s");
    handler.check::<ListEntry>(path("/")).await.expect_allowed();
    assert!(connections.load(SeqCst) >= 2);
}
