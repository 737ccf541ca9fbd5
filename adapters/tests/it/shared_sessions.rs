//! Servers that share sessions in Redis.

use std::{fs, time::Duration};

use crate::support::{Server, debian::Redis, mixer::unary, run, signal};
use mixer_adapter::{
    prost::{Message as _, Name},
    proto::{Any, CheckResult},
    template::{
        ListEntry, Template as _,
        listentry::{HandleListEntryRequest, InstanceMsg},
    },
    tonic::{Code, Request, Response, Status},
};
use mixer_adapter_engine::proto::istio::mixer::adapter::model::v1beta1::{
    CloseSessionRequest, CloseSessionResponse, CreateSessionRequest, CreateSessionResponse,
};
use mixer_adapters::denier;
use tempfile::TempDir;

const BACKEND: &str = "/istio.mixer.adapter.model.v1beta1.InfrastructureBackend";
const INSTANCE: &str = "entry.instance.istio-system";

/// The flags of servers with one Redis, one key, and the clients alice and bob.
struct Mesh {
    redis: Redis,
    folder: TempDir,
}

impl Mesh {
    fn start() -> Option<Self> {
        let (redis, folder) = (Redis::start()?, tempfile::tempdir().unwrap());
        fs::write(folder.path().join("key"), "0123456789abcdef0123456789abcdef\n").unwrap();
        fs::write(folder.path().join("tokens"), "alice s3cr3t-of-alice\nbob s3cr3t-of-bob\n").unwrap();
        Some(Self { redis, folder })
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    fn serve(&self, flags: &[&str]) -> Server {
        let url = format!("redis://127.0.0.1:{}", self.redis.port());
        let shared = ["--sessions", &url, "--session-key-file", &self.path("key")];
        Server::start(&[&shared[..], flags].concat())
    }
}

/// A client of one server, which has no connection between its calls, and perhaps a token.
#[derive(Clone, Copy)]
struct Client<'s>(&'s Server, Option<&'s str>);

impl Client<'_> {
    async fn unary<Q, A>(self, path: &str, request: Q) -> Result<A, Status>
    where
        Q: mixer_adapter::prost::Message + 'static,
        A: mixer_adapter::prost::Message + Default + 'static,
    {
        let mut request = Request::new(request);
        if let Some(token) = self.1 {
            request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        }
        unary(self.0, path, request).await.map(Response::into_inner)
    }

    /// Creates a session whose calls are denied with a code, and returns its id.
    async fn create(self, code: i32) -> String {
        let config = denier::Params {
            status: Some(mixer_adapter::proto::Status { code, ..Default::default() }),
            ..Default::default()
        };
        let adapter_config = Some(Any {
            type_url: format!("type.googleapis.com/{}", denier::Params::full_name()),
            value: config.encode_to_vec().into(),
        });
        let inferred = Any { type_url: "listentry.Type".to_owned(), value: Vec::new().into() };
        let inferred_types = [(INSTANCE.to_owned(), inferred)].into();
        let request = CreateSessionRequest { adapter_config, inferred_types };
        let path = format!("{BACKEND}/CreateSession");
        let created: CreateSessionResponse = self.unary(&path, request).await.unwrap();
        assert_eq!(created.status.unwrap().code, 0);
        created.session_id
    }

    /// Calls with the id of a session or without, and returns the code of the denial.
    async fn entry(self, id: Option<&str>) -> Result<i32, Code> {
        let adapter_config = id.map(|id| Any {
            type_url: "google.protobuf.Any.type_url".to_owned(),
            value: id.to_owned().into_bytes().into(),
        });
        let instance = Some(InstanceMsg { name: INSTANCE.to_owned(), ..Default::default() });
        let request = HandleListEntryRequest { instance, adapter_config, dedup_id: String::new() };
        let answer: Result<CheckResult, Status> = self.unary(ListEntry::METHOD, request).await;
        answer.map(|answer| answer.status.unwrap().code).map_err(|status| status.code())
    }

    async fn close(self, id: &str) -> Code {
        let request = CloseSessionRequest { session_id: id.to_owned() };
        let path = format!("{BACKEND}/CloseSession");
        let closed: CloseSessionResponse = self.unary(&path, request).await.unwrap();
        Code::from(closed.status.unwrap().code)
    }

    /// Waits until calls with an id have an outcome.
    async fn until(self, id: &str, outcome: Result<i32, Code>) {
        eventually(async || self.entry(Some(id)).await == outcome, &format!("{outcome:?}")).await;
    }
}

async fn eventually(is_true: impl AsyncFn() -> bool, what: &str) {
    let waiting = async {
        while !is_true().await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(60), waiting).await;
    assert!(waited.is_ok(), "not within a minute: {what}");
}

#[tokio::test]
async fn a_session_of_one_server_is_used_on_another_and_closed_on_a_third() {
    let Some(mesh) = Mesh::start() else { return };
    let servers = [(); 3].map(|()| mesh.serve(&[]));
    let [one, other, third] = servers.each_ref().map(|server| Client(server, None));
    let id = one.create(16).await;
    assert_eq!(other.entry(Some(&id)).await, Ok(16));
    assert_eq!(third.create(16).await, id, "a second claim");
    assert_eq!(other.close(&id).await, Code::Ok);
    assert_eq!(one.entry(Some(&id)).await, Ok(16), "one claim is left");
    // A server that starts later finds the session, and the server that created it stops.
    let successor = mesh.serve(&[]);
    let successor = Client(&successor, None);
    signal(servers[0].child.id(), "TERM");
    assert_eq!(successor.entry(Some(&id)).await, Ok(16));
    assert_eq!(third.close(&id).await, Code::Ok);
    assert_eq!(third.close(&id).await, Code::NotFound);
    for server in [other, third, successor] {
        server.until(&id, Err(Code::NotFound)).await;
    }
    let keys = mesh.redis.command(&["KEYS", "*"]);
    let keys: Vec<&str> = keys.lines().filter(|line| line.starts_with("mixer-adapter:")).collect();
    assert!(keys.len() >= 3, "{keys:?}");
    for key in keys {
        assert!(!mesh.redis.command(&["PTTL", key]).starts_with(":-1"), "{key} does not expire");
    }
}

#[tokio::test]
async fn a_claim_is_released_on_any_server_by_its_peer_only() {
    let Some(mesh) = Mesh::start() else { return };
    let servers = [(); 2].map(|()| mesh.serve(&["--token-file", &mesh.path("tokens")]));
    let [[alice, bob], [alice_there, bob_there]] = servers
        .each_ref()
        .map(|server| ["s3cr3t-of-alice", "s3cr3t-of-bob"].map(|token| Client(server, Some(token))));
    let id = alice.create(16).await;
    assert_eq!(bob_there.entry(Some(&id)).await, Ok(16), "everybody who knows the id may call");
    assert_eq!(bob_there.close(&id).await, Code::PermissionDenied);
    assert_eq!(bob_there.create(16).await, id);
    assert_eq!(bob.close(&id).await, Code::Ok, "its own claim");
    assert_eq!(bob.close(&id).await, Code::PermissionDenied);
    assert_eq!(alice_there.close(&id).await, Code::Ok);
    assert_eq!(alice_there.entry(Some(&id)).await, Err(Code::NotFound));
}

#[tokio::test]
async fn a_call_without_an_id_finds_the_newest_session_of_any_server_if_it_may() {
    let Some(mesh) = Mesh::start() else { return };
    let servers = [mesh.serve(&[]), mesh.serve(&["--session-lookup", "any"])];
    let [one, other] = servers.each_ref().map(|server| Client(server, None));
    one.create(16).await;
    one.create(7).await;
    assert_eq!(other.entry(None).await, Ok(7));
    assert_eq!(one.entry(None).await, Err(Code::FailedPrecondition), "another connection");
}

#[tokio::test]
async fn known_sessions_go_on_without_redis_and_a_redis_that_lost_them_has_them_again() {
    let Some(mut mesh) = Mesh::start() else { return };
    let servers = [(); 3].map(|()| mesh.serve(&["--session-lookup", "any"]));
    let [one, other, third] = servers.each_ref().map(|server| Client(server, None));
    let id = one.create(16).await;
    assert_eq!(other.entry(Some(&id)).await, Ok(16));
    mesh.redis.kill();
    servers[2].until("/readyz", "warning: the Redis of --sessions is away");
    for server in [one, other] {
        assert_eq!(server.entry(Some(&id)).await, Ok(16));
    }
    for id in [Some(&*id), None] {
        assert_eq!(third.entry(id).await, Err(Code::Unavailable), "nothing else answers for a session");
    }
    // A new session is known to its server.
    let new = third.create(7).await;
    assert_eq!(third.entry(Some(&new)).await, Ok(7));
    mesh.redis.restart();
    third.until(&id, Ok(16)).await;
    one.until(&new, Ok(7)).await;
    // Its only claim, which the server that has it sends again.
    eventually(async || third.close(&id).await == Code::Ok, "the session is closed").await;
    for server in [one, other, third] {
        server.until(&id, Err(Code::NotFound)).await;
    }
    assert_eq!(one.entry(Some(&new)).await, Ok(7));
}

#[tokio::test]
async fn a_session_that_is_created_again_has_no_claims_from_before() {
    let Some(mesh) = Mesh::start() else { return };
    let servers = [(); 2].map(|()| mesh.serve(&[]));
    let [one, other] = servers.each_ref().map(|server| Client(server, None));
    let (id, marker) = (other.create(16).await, other.create(7).await);
    assert_eq!(one.close(&id).await, Code::Ok);
    assert_eq!(one.create(16).await, id);
    // The other server has compared its sessions with Redis since then.
    assert_eq!(one.close(&marker).await, Code::Ok);
    other.until(&marker, Err(Code::NotFound)).await;
    assert_eq!(other.entry(Some(&id)).await, Ok(16));
    assert_eq!(one.close(&id).await, Code::Ok);
    assert_eq!(one.entry(Some(&id)).await, Err(Code::NotFound));
}

#[tokio::test]
async fn a_release_is_not_sent_to_a_redis_that_lost_its_claim() {
    let Some(mut mesh) = Mesh::start() else { return };
    let servers = [(); 2].map(|()| mesh.serve(&["--token-file", &mesh.path("tokens")]));
    let [one, other] = servers.each_ref().map(|server| Client(server, Some("s3cr3t-of-alice")));
    let (id, marker) = (one.create(16).await, other.create(7).await);
    assert_eq!(other.create(16).await, id, "the same peer on another server");
    mesh.redis.kill();
    servers[1].until("/readyz", "warning: the Redis of --sessions is away");
    assert_eq!(other.close(&id).await, Code::Ok);
    mesh.redis.restart();
    // Both servers have sent what they have, the second one in a round after that of its release.
    one.until(&marker, Ok(7)).await;
    other.until(&id, Ok(16)).await;
    eventually(async || one.close(&marker).await == Code::Ok, "the session is closed").await;
    other.until(&marker, Err(Code::NotFound)).await;
    assert_eq!(one.entry(Some(&id)).await, Ok(16), "its claim is left");
    assert_eq!(one.close(&id).await, Code::Ok);
    assert_eq!(one.entry(Some(&id)).await, Err(Code::NotFound));
}

#[test]
fn flags_of_shared_sessions_are_checked_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    fs::write(&key, "0123456789abcdef0123456789abcdef\n").unwrap();
    let key = ["--session-key-file", key.to_str().unwrap()];
    let serve = ["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    for (arguments, text) in [
        (&["--sessions", "redis://127.0.0.1:9"][..], "--session-key-file"),
        (&[&key[..], &["--sessions", "127.0.0.1:6379"]].concat(), "redis://host:6379/0"),
        (&[&key[..], &["--sessions", "redis://a:b@127.0.0.1"]].concat(), "must not have a user name"),
        (&[&key[..], &["--sessions", "redis://a,b"]].concat(), "--sessions-sentinel-master"),
        (
            &[&key[..], &["--sessions", "redis://redis.example", "--sessions-password-file", "x"]].concat(),
            "over TLS only",
        ),
        (
            &[&key[..], &["--sessions", "redis://127.0.0.1:9", "--sessions-password-file", "/nowhere/x"]]
                .concat(),
            "/nowhere/x cannot be read",
        ),
        (&["--sessions-username", "a"], "--sessions <URL>"),
    ] {
        let ran = run(&[&serve[..], arguments].concat());
        assert_ne!(ran.code, 0, "{ran:?}");
        assert!(ran.stderr.contains(text), "{text}: {ran:?}");
    }
}
