use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{io::AsyncReadExt as _, net::TcpListener, runtime::Handle, sync::mpsc, time::Instant};
use tonic::Code;

use super::{
    check, connection, port,
    probe::{Running, configured, reason},
    quick, remote, request,
    scripted::{Act, Scripted},
    soon, until,
};
use crate::remote::{Options, RemoteAdapter, Resolver};
use mixer_adapter::service::ServerOptions;

/// A name whose addresses a test changes.
fn name(addresses: &Arc<Mutex<Vec<SocketAddr>>>) -> Resolver {
    let addresses = addresses.clone();
    Resolver::new(move |host, _| {
        let known = addresses.lock().unwrap().clone();
        assert_eq!(host, "adapter");
        async move { Ok(known) }
    })
}

fn named(address: &str, addresses: &Arc<Mutex<Vec<SocketAddr>>>) -> RemoteAdapter {
    let options = Options { resolver: name(addresses), ..quick() };
    RemoteAdapter::new(&connection(address), &options, &Handle::current()).unwrap()
}

async fn ask(remote: &RemoteAdapter) -> Result<bytes::Bytes, tonic::Status> {
    soon(remote.call(&check(), request(None), None)).await
}

#[tokio::test]
async fn one_connection_is_made_with_the_first_call_and_ends_with_the_adapter() {
    let server = Scripted::start(|_| Act::ok(b"")).await;
    let remote = remote(server.address);
    assert_eq!(server.connections(), 0);
    for answer in futures_util::future::join_all((0..20).map(|_| ask(&remote))).await {
        answer.unwrap();
    }
    assert_eq!((server.connections(), server.open()), (1, 1));
    drop(remote);
    until(async || server.open() == 0).await;
}

#[tokio::test]
async fn where_nobody_listens_is_unavailable_at_once_and_back_within_a_second() {
    let port = port();
    let address = port.address;
    let remote = RemoteAdapter::new(&connection(address), &Options::default(), &Handle::current()).unwrap();
    for _ in 0..10 {
        let before = Instant::now();
        let error = ask(&remote).await.unwrap_err();
        assert_eq!(error.code(), Code::Unavailable);
        assert!(error.message().contains(&address.to_string()), "{error:?}");
        assert!(before.elapsed() < Duration::from_millis(100));
    }
    // Long enough for the rests to have grown.
    tokio::time::sleep(Duration::from_millis(1200)).await;
    let _server = Scripted::on(&port, |_| Act::ok(b"back")).await;
    let started = Instant::now();
    until(async || ask(&remote).await.is_ok()).await;
    assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
}

#[tokio::test]
async fn calls_go_on_when_an_adapter_restarts() {
    let adapter = Running::start().await;
    let remote = remote(adapter.address);
    let call = async || remote.call(&check(), request(Some(configured("here"))), None).await;
    assert_eq!(reason(call().await.unwrap()), "here");
    let port = adapter.stop().await;
    until(async || call().await.is_err_and(|error| error.code() == Code::Unavailable)).await;
    let _adapter = Running::on(port, ServerOptions::default()).await;
    until(async || call().await.is_ok()).await;
}

/// A server ends its connections in order so that its callers find new replicas; no call may fail of it.
#[tokio::test]
async fn connections_that_end_in_order_lose_no_call() {
    let age = Some(Duration::from_millis(20));
    let options = ServerOptions::default().max_connection_age(age);
    let adapter = Running::on(port(), options).await;
    let remote = remote(adapter.address);
    let end = Instant::now() + Duration::from_millis(300);
    let caller = async || {
        while Instant::now() < end {
            let answer = remote.call(&check(), request(Some(configured("here"))), None).await;
            assert_eq!(reason(answer.unwrap()), "here");
        }
    };
    futures_util::future::join_all((0..8).map(|_| caller())).await;
}

#[tokio::test]
async fn a_connection_that_breaks_is_made_again() {
    let server = Scripted::start(|seen| if seen.connection == 1 { Act::Cut } else { Act::ok(b"") }).await;
    let remote = remote(server.address);
    assert_eq!(ask(&remote).await.unwrap_err().code(), Code::Unavailable);
    ask(&remote).await.unwrap();
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn a_dns_name_has_a_connection_to_each_address_and_calls_take_turns() {
    let mut servers = [Scripted::start(|_| Act::ok(b"")).await, Scripted::start(|_| Act::ok(b"")).await];
    let addresses = Arc::new(Mutex::new(servers.iter().map(|server| server.address).collect()));
    let remote = named("dns:///adapter:1", &addresses);
    until(async || {
        ask(&remote).await.unwrap();
        servers.iter().all(|server| server.open() == 1)
    })
    .await;
    servers.iter_mut().for_each(|server| drop(server.rest()));
    for _ in 0..10 {
        ask(&remote).await.unwrap();
    }
    assert_eq!(servers.each_mut().map(|server| server.rest().len()), [5, 5]);
}

#[tokio::test]
async fn an_address_that_is_down_gets_no_calls_until_it_is_back() {
    let first = Scripted::start(|_| Act::ok(b"first")).await;
    let down = port();
    let addresses = Arc::new(Mutex::new(vec![first.address, down.address]));
    let remote = named("dns:///adapter:1", &addresses);
    for _ in 0..20 {
        assert_eq!(ask(&remote).await.unwrap(), "first");
    }
    let mut second = Scripted::on(&down, |_| Act::ok(b"second")).await;
    until(async || ask(&remote).await.unwrap() == "second").await;
    drop(first);
    until(async || ask(&remote).await.is_ok_and(|answer| answer == "second")).await;
    second.rest();
}

#[tokio::test]
async fn an_address_that_leaves_its_name_finishes_its_calls() {
    let (reset, mut resets) = mpsc::channel(16);
    let mut old = Scripted::start(move |_| Act::Hang(reset.clone())).await;
    let new = Scripted::start(|_| Act::ok(b"new")).await;
    let addresses = Arc::new(Mutex::new(vec![old.address]));
    let remote = Arc::new(named("dns:///adapter:1", &addresses));
    let hanging = {
        let remote = remote.clone();
        tokio::spawn(async move { remote.call(&check(), request(None), None).await })
    };
    old.next().await;
    *addresses.lock().unwrap() = vec![new.address];
    until(async || new.open() == 1).await;
    // The new one may be there before the old one is gone.
    until(async || {
        let within = Instant::now() + Duration::from_millis(50);
        remote.call(&check(), request(None), Some(within)).await.is_ok_and(|answer| answer == "new")
    })
    .await;
    while resets.try_recv().is_ok() {}
    assert_eq!((old.open(), hanging.is_finished()), (1, false), "the call goes on");
    hanging.abort();
    until(async || old.open() == 0).await;
}

#[tokio::test]
async fn a_plain_name_has_one_connection_to_the_first_address_that_answers() {
    let servers = [Scripted::start(|_| Act::ok(b"")).await, Scripted::start(|_| Act::ok(b"")).await];
    let down = port();
    let known = vec![down.address, servers[0].address, servers[1].address];
    let remote = named("adapter:1", &Arc::new(Mutex::new(known)));
    for _ in 0..10 {
        ask(&remote).await.unwrap();
    }
    assert_eq!([servers[0].connections(), servers[1].connections()], [1, 0]);
}

#[tokio::test]
async fn a_name_without_addresses_is_unavailable_until_it_has_some() {
    let addresses = Arc::new(Mutex::new(Vec::new()));
    let server = Scripted::start(|_| Act::ok(b"")).await;
    for address in ["dns:///adapter:1", "adapter:1"] {
        addresses.lock().unwrap().clear();
        let remote = named(address, &addresses);
        let error = ask(&remote).await.unwrap_err();
        assert_eq!(error.code(), Code::Unavailable);
        assert!(error.message().contains("\"adapter\" has no address"), "{error:?}");
        addresses.lock().unwrap().push(server.address);
        until(async || ask(&remote).await.is_ok()).await;
    }
}

#[tokio::test]
async fn a_connection_that_is_never_made_is_unavailable_in_time() {
    let never = Resolver::new(|_, _| std::future::pending());
    let connect_timeout = Duration::from_millis(30);
    let options = Options { resolver: never, connect_timeout, ..quick() };
    for address in ["adapter:1", "dns:///adapter:1"] {
        let remote = RemoteAdapter::new(&connection(address), &options, &Handle::current()).unwrap();
        assert_eq!(ask(&remote).await.unwrap_err().code(), Code::Unavailable);
    }
}

#[tokio::test]
async fn an_adapter_that_fell_silent_is_noticed_while_a_call_waits() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let silent = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut nothing = [0; 1024];
        while stream.read(&mut nothing).await.is_ok_and(|read| read > 0) {}
    };
    let asked = Duration::from_millis(20);
    let options = Options { keepalive: Some(asked), keepalive_timeout: asked, ..quick() };
    let remote = RemoteAdapter::new(&connection(address), &options, &Handle::current()).unwrap();
    let (answer, ()) = tokio::join!(ask(&remote), silent);
    assert_eq!(answer.unwrap_err().code(), Code::Unavailable);
}

#[tokio::test]
async fn a_server_that_ends_every_connection_is_unavailable_and_not_called_in_a_loop() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let accepted = Arc::new(Mutex::new(0));
    let counted = accepted.clone();
    let ends = tokio::spawn(async move {
        loop {
            drop(listener.accept().await.unwrap());
            *counted.lock().unwrap() += 1;
        }
    });
    let remote = RemoteAdapter::new(&connection(address), &Options::default(), &Handle::current()).unwrap();
    let end = Instant::now() + Duration::from_millis(500);
    while Instant::now() < end {
        assert_eq!(ask(&remote).await.unwrap_err().code(), Code::Unavailable);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // Rests of at least 40, 60, 90, 135 and 202 ms lie between them.
    assert!(*accepted.lock().unwrap() <= 6, "{accepted:?}");
    ends.abort();
}
