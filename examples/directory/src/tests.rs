#![allow(clippy::unwrap_used)]

use std::{
    io::Write as _,
    sync::atomic::{AtomicU64, Ordering::SeqCst},
};

use mixer_adapter::http::Request;
use mixer_adapter::prost::bytes::Bytes;
use mixer_adapter::testing::{FakeHandler, FakeMixer, FakeService};
use tempfile::NamedTempFile;

use super::*;

mixer_adapter::testing::compliance!(
    Directory,
    state(Clock(Box::new(Instant::now))),
    config(&format!("{{url: '{}', token_file: src/token.txt}}", FakeService::start(answer).url("/users"))),
    refuses("ttl", "{url: 'http://127.0.0.1:9', token_file: src/token.txt, ttl: 0s}"),
    refuses("url", "token_file: src/token.txt"),
    refuses("token_file", "{url: 'http://users.example.com', token_file: src/token.txt}"),
    refuses("token_file", "url: 'http://127.0.0.1:9'")
);

/// The answer of a service that allows bob.
fn answer(request: &Request<Bytes>) -> (u16, String) {
    let question: HashMap<String, String> = serde_json::from_slice(request.body()).unwrap();
    (200, format!(r#"{{"allowed": {}}}"#, question["user"] == "bob"))
}

/// A service that allows bob, a clock that stands still, and a handler with both.
struct World {
    service: FakeService,
    seconds: Arc<AtomicU64>,
    directory: FakeHandler,
    _token: NamedTempFile,
}

async fn world(ttl: &str) -> World {
    let seconds = Arc::<AtomicU64>::default();
    let service = FakeService::start(|request| {
        assert_eq!(request.headers()["authorization"], "Bearer s3cr3t");
        answer(request)
    });
    let url = service.url("/users");
    let mut token = NamedTempFile::new().unwrap();
    writeln!(token, "s3cr3t").unwrap();
    let (start, now) = (Instant::now(), seconds.clone());
    let clock = Clock(Box::new(move || start + SECOND * now.load(SeqCst) as u32));
    let config = format!("{{url: '{url}', token_file: '{}', ttl: {ttl}}}", token.path().display());
    let directory = FakeMixer::with_state::<Directory, _>(clock).params(&*config);
    World { service, seconds, directory, _token: token }
}

fn user(name: &str) -> InstanceMsg {
    InstanceMsg { value: Some(name.into()), ..Default::default() }
}

#[tokio::test]
async fn users_are_asked_for_once_until_their_answer_is_too_old() {
    let World { service, seconds, directory, _token } = world("1h").await;
    for _ in 0..3 {
        directory.check::<ListEntry>(user("bob")).await.expect_allowed();
        directory.check::<ListEntry>(user("eve")).await.expect_denied(Code::PermissionDenied, "not in the");
    }
    assert_eq!(service.request_count(), 2);
    seconds.store(3600, SeqCst);
    directory.check::<ListEntry>(user("bob")).await.expect_allowed();
    assert_eq!(service.request_count(), 3);
}

#[tokio::test]
async fn known_users_are_refreshed_until_the_handler_is_closed() {
    let World { service, directory, _token, .. } = world("1s").await;
    directory.check::<ListEntry>(user("bob")).await.expect_allowed();
    while service.request_count() < 3 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    directory.close().await;
    let closed = service.request_count();
    tokio::time::sleep(SECOND * 3 / 2).await;
    assert_eq!(service.request_count(), closed);
}
