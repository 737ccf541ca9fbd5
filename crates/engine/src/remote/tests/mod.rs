//! Our client against our server, and against scripted ones that misbehave.

#![allow(clippy::unwrap_used)]

mod calls;
mod check_access;
mod connections;
mod contract;
mod malformed;
#[cfg(feature = "tls")]
mod mutual;
#[cfg(feature = "tls")]
mod oauth;
#[cfg(feature = "tls")]
mod pki;
mod probe;
mod scripted;
mod sessions;
#[cfg(feature = "tls")]
mod tls;

use std::{net::SocketAddr, time::Duration};

use bytes::Bytes;
use http::uri::PathAndQuery;
use prost::Message as _;
use tokio::{net::TcpSocket, runtime::Handle};

use self::probe::configured;
use super::{Backoff, OpenError, Options, RemoteAdapter, Session};
use mixer_adapter_config::proto::istio::policy::v1beta1::Connection;
use mixer_adapter_core::{proto::Any, template::Template as _};
use mixer_adapter_host::{
    NewSession,
    handler::{Caller, Closing},
};
use mixer_adapter_templates::{CheckNothing, checknothing};

/// Options with which nothing takes long.
fn quick() -> Options {
    Options {
        connect_timeout: Duration::from_secs(2),
        reconnect: Backoff { first: Duration::from_millis(5), longest: Duration::from_millis(20) },
        resolve_interval: Duration::from_millis(20),
        setup_timeout: Duration::from_secs(2),
        close_timeout: Duration::from_secs(2),
        setup_backoff: Backoff { first: Duration::from_millis(5), longest: Duration::from_millis(20) },
        token_file_age: Duration::ZERO,
        ..Options::default()
    }
}

fn connection(address: impl ToString) -> Connection {
    Connection { address: address.to_string(), ..Connection::default() }
}

fn remote(address: SocketAddr) -> RemoteAdapter {
    RemoteAdapter::new(&connection(address), &quick(), &Handle::current()).unwrap()
}

fn check() -> PathAndQuery {
    PathAndQuery::from_static(CheckNothing::METHOD)
}

/// A check with that configuration.
fn request(adapter_config: Option<Any>) -> Bytes {
    let instance = checknothing::InstanceMsg { name: "i.instance.ns".to_owned() };
    let dedup_id = "1".to_owned();
    checknothing::HandleCheckNothingRequest { instance: Some(instance), adapter_config, dedup_id }
        .encode_to_vec()
        .into()
}

/// The number of `adapter_config` in requests of the standard templates.
const ADAPTER_CONFIG: u32 = 2;

/// The request that opens a session with that configuration.
fn new(adapter_config: Any) -> NewSession {
    let instance = Any { type_url: "checknothing.Type".to_owned(), value: Bytes::new() };
    NewSession {
        adapter_config: Some(adapter_config),
        inferred_types: [("i.instance.ns".to_owned(), instance)].into(),
    }
}

async fn open(address: SocketAddr, config: &str) -> Result<(Session, Closing), OpenError> {
    let closing = Closing::on(Handle::current());
    let session = Session::open(&connection(address), new(configured(config)), &quick(), &closing).await?;
    Ok((session, closing))
}

async fn ask(session: &Session) -> Result<Bytes, tonic::Status> {
    soon(session.call(&check(), ADAPTER_CONFIG, request(None), &Caller::default())).await
}

/// Drops a session and waits until that is done.
async fn close(session: Session, closing: Closing) {
    drop(session);
    assert_eq!(closing.finish(Duration::from_secs(10)).await, 0);
}

/// A port that nobody else is given, also while nobody listens on it: tests run beside one another, and one's client that
/// tries again must not find another's server.
struct Port {
    address: SocketAddr,
    _bound: TcpSocket,
}

fn port() -> Port {
    let bound = TcpSocket::new_v4().unwrap();
    // Lets a server listen on it too.
    bound.set_reuseaddr(true).unwrap();
    bound.bind(([127, 0, 0, 1], 0).into()).unwrap();
    Port { address: bound.local_addr().unwrap(), _bound: bound }
}

/// Waits for a future with a generous timeout.
async fn soon<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(10), work).await.unwrap()
}

/// Polls a condition until it holds, with a generous timeout.
async fn until(mut holds: impl AsyncFnMut() -> bool) {
    soon(async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
}
