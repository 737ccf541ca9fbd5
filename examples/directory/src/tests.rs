#![allow(clippy::unwrap_used)]

use std::{
    io::Write as _,
    sync::atomic::{AtomicU64, Ordering::SeqCst},
};

use axum::{Json, Router, http::HeaderMap, routing::post};
use mixer_adapter::testing::{FakeHandler, FakeMixer};
use tempfile::NamedTempFile;

use super::*;

mixer_adapter::testing::compliance!(
    Directory,
    state(Clock(Box::new(Instant::now))),
    config(&format!("{{url: '{}', token_file: src/token.txt}}", service())),
    refuses("ttl", "{url: 'http://127.0.0.1:9', token_file: src/token.txt, ttl: 0s}"),
    refuses("url", "token_file: src/token.txt"),
    refuses("token_file", "url: 'http://127.0.0.1:9'")
);

/// Starts a service that allows bob, for a test without a runtime, and returns its URL.
fn service() -> String {
    let (sender, url) = std::sync::mpsc::sync_channel(1);
    std::thread::spawn(move || {
        let answer = async |Json(question): Json<HashMap<String, String>>| {
            Json(HashMap::from([("allowed", question["user"] == "bob")]))
        };
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            sender.send(format!("http://{}/users", listener.local_addr().unwrap())).unwrap();
            axum::serve(listener, Router::new().route("/users", post(answer))).await
        })
    });
    url.recv().unwrap()
}

/// A service that allows bob, a clock that stands still, and a handler with both.
struct World {
    asked: Arc<AtomicU64>,
    seconds: Arc<AtomicU64>,
    directory: FakeHandler,
    _token: NamedTempFile,
}

async fn world(ttl: &str) -> World {
    let (asked, seconds) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
    let count = asked.clone();
    let answer = async move |headers: HeaderMap, Json(question): Json<HashMap<String, String>>| {
        assert_eq!(headers["authorization"], "Bearer s3cr3t");
        count.fetch_add(1, SeqCst);
        Json(HashMap::from([("allowed", question["user"] == "bob")]))
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/users", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, Router::new().route("/users", post(answer))).await });
    let mut token = NamedTempFile::new().unwrap();
    writeln!(token, "s3cr3t").unwrap();
    let (start, now) = (Instant::now(), seconds.clone());
    let clock = Clock(Box::new(move || start + SECOND * now.load(SeqCst) as u32));
    let config = format!("{{url: '{url}', token_file: '{}', ttl: {ttl}}}", token.path().display());
    let directory = FakeMixer::with_state::<Directory, _>(clock).params(&*config);
    World { asked, seconds, directory, _token: token }
}

fn user(name: &str) -> InstanceMsg {
    InstanceMsg { value: Some(name.into()), ..Default::default() }
}

#[tokio::test]
async fn users_are_asked_for_once_until_their_answer_is_too_old() {
    let World { asked, seconds, directory, _token } = world("1h").await;
    for _ in 0..3 {
        directory.check::<ListEntry>(user("bob")).await.expect_allowed();
        directory.check::<ListEntry>(user("eve")).await.expect_denied(Code::PermissionDenied, "not in the");
    }
    assert_eq!(asked.load(SeqCst), 2);
    seconds.store(3600, SeqCst);
    directory.check::<ListEntry>(user("bob")).await.expect_allowed();
    assert_eq!(asked.load(SeqCst), 3);
}

#[tokio::test]
async fn known_users_are_refreshed_until_the_handler_is_closed() {
    let World { asked, directory, _token, .. } = world("1s").await;
    directory.check::<ListEntry>(user("bob")).await.expect_allowed();
    while asked.load(SeqCst) < 3 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    directory.close().await;
    let closed = asked.load(SeqCst);
    tokio::time::sleep(SECOND * 3 / 2).await;
    assert_eq!(asked.load(SeqCst), closed);
}
