//! TLS with tokens from an OAuth server.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use axum::{Router, http::StatusCode, routing::post};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::HeaderMap;
use tokio::{net::TcpListener, runtime::Handle, sync::Semaphore, time::Instant};
use tonic::Code;

use super::{
    check, connection,
    pki::{Authority, Files, Secured, secured},
    quick, request,
    scripted::Act,
    soon, until,
};
use crate::remote::{Backoff, Options, RemoteAdapter};
use mixer_adapter_config::proto::istio::policy::v1beta1::{
    Authentication, Connection, OAuth, Tls,
    authentication::AuthType,
    tls::{TokenSource, TokenType},
};

/// A request for a token.
#[derive(Clone, Debug)]
struct TokenRequest {
    authorization: Option<String>,
    form: BTreeMap<String, String>,
}

/// An OAuth server.
struct Issuer {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<TokenRequest>>>,
}

impl Issuer {
    /// Answers the n-th request, counted from 1, with `answer`, once there is a permit.
    async fn start(
        permits: usize,
        answer: impl Fn(usize, &TokenRequest) -> (u16, String) + Clone + Send + Sync + 'static,
    ) -> (Self, Arc<Semaphore>) {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (permitted, noted) = (Arc::new(Semaphore::new(permits)), asked.clone());
        let held = permitted.clone();
        let answer = move |headers: HeaderMap, body: String| {
            let (noted, held, answer) = (noted.clone(), held.clone(), answer.clone());
            async move {
                assert_eq!(headers["content-type"], "application/x-www-form-urlencoded");
                let authorization =
                    headers.get("authorization").map(|value| value.to_str().unwrap().to_owned());
                let form = form_urlencoded::parse(body.as_bytes()).into_owned().collect();
                let asked = TokenRequest { authorization, form };
                let count = {
                    let mut noted = noted.lock().unwrap();
                    noted.push(asked.clone());
                    noted.len()
                };
                held.acquire().await.unwrap().forget();
                let (status, body) = answer(count, &asked);
                (StatusCode::from_u16(status).unwrap(), body)
            }
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().route("/token", post(answer));
        tokio::spawn(async move { axum::serve(listener, router).await });
        (Self { address, asked }, permitted)
    }

    fn asked(&self) -> Vec<TokenRequest> {
        self.asked.lock().unwrap().clone()
    }
}

const MANY: usize = 1000;

fn token(number: usize) -> (u16, String) {
    (200, format!(r#"{{"access_token": "t{number}", "token_type": "bearer", "expires_in": 3600}}"#))
}

struct Setting {
    to: Secured,
    files: Files,
    tls: Tls,
}

impl Setting {
    async fn new(issuer: &Issuer) -> Self {
        let (authority, files) = (Authority::new(), Files::new());
        let to = secured(&authority.issue(&["adapter.example"]), None, |_| Act::ok(b"")).await;
        let tls = Tls {
            ca_certificates: files.write("ca.pem", &authority.pem()),
            token_source: None,
            token_type: None,
            server_name: "adapter.example".to_owned(),
        };
        let mut setting = Self { to, files, tls };
        let client_secret = setting.files.write("secret", "p@ss\n");
        setting.oauth(OAuth {
            client_id: "me:1".to_owned(),
            client_secret,
            token_url: format!("http://{}/token", issuer.address),
            ..OAuth::default()
        });
        setting
    }

    fn oauth(&mut self, oauth: OAuth) {
        self.tls.token_source = Some(TokenSource::Oauth(oauth));
    }

    fn change(&mut self, change: impl FnOnce(&mut OAuth)) {
        match &mut self.tls.token_source {
            Some(TokenSource::Oauth(oauth)) => change(oauth),
            other => panic!("{other:?}"),
        }
    }

    fn connection(&self) -> Connection {
        let authentication = Some(Authentication { auth_type: Some(AuthType::Tls(self.tls.clone())) });
        Connection { authentication, ..connection(self.to.server.address) }
    }

    fn remote(&self) -> RemoteAdapter {
        RemoteAdapter::new(&self.connection(), &quick(), &Handle::current()).unwrap()
    }

    async fn sent(&mut self, header: &str) -> String {
        self.to.server.next().await.header(header).unwrap().to_owned()
    }
}

async fn ask(remote: &RemoteAdapter) -> Result<bytes::Bytes, tonic::Status> {
    soon(remote.call(&check(), request(None), None)).await
}

#[tokio::test]
async fn a_token_is_fetched_once_for_all_calls_and_sent_as_a_bearers() {
    let (issuer, _) = Issuer::start(MANY, |count, _| token(count)).await;
    let mut setting = Setting::new(&issuer).await;
    setting.change(|oauth| {
        oauth.scopes = vec!["read".to_owned(), "write".to_owned()];
        oauth.endpoint_params = [("audience".to_owned(), "a&b".to_owned())].into();
    });
    let remote = setting.remote();
    assert!(issuer.asked().is_empty(), "with the first call");
    for answer in futures_util::future::join_all((0..20).map(|_| ask(&remote))).await {
        answer.unwrap();
    }
    for _ in 0..20 {
        assert_eq!(setting.sent("authorization").await, "Bearer t1");
    }
    let asked = issuer.asked();
    assert_eq!(asked.len(), 1);
    // Both parts are form-encoded before they are joined (RFC 6749, section 2.3.1), the newline is not part of the secret.
    let credentials = format!("Basic {}", STANDARD.encode("me%3A1:p%40ss"));
    assert_eq!(asked[0].authorization, Some(credentials));
    let form = [("audience", "a&b"), ("grant_type", "client_credentials"), ("scope", "read write")];
    assert_eq!(asked[0].form, form.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
}

#[tokio::test]
async fn a_token_that_expires_is_fetched_again() {
    let (issuer, _) =
        Issuer::start(MANY, |count, _| (200, format!(r#"{{"access_token":"t{count}","expires_in":"0.1"}}"#)))
            .await;
    let mut setting = Setting::new(&issuer).await;
    let remote = setting.remote();
    ask(&remote).await.unwrap();
    assert_eq!(setting.sent("authorization").await, "Bearer t1");
    tokio::time::sleep(Duration::from_millis(120)).await;
    ask(&remote).await.unwrap();
    assert_eq!(setting.sent("authorization").await, "Bearer t2");
}

#[tokio::test]
async fn headers_and_token_types_are_honoured() {
    let (issuer, _) =
        Issuer::start(MANY, |_, _| (200, r#"{"access_token":"t","token_type":"MAC"}"#.to_owned())).await;
    let mut setting = Setting::new(&issuer).await;
    for (kind, header, value) in [
        (None, "authorization", "MAC t"),
        (Some(TokenType::AuthHeader(0)), "authorization", "t"),
        (Some(TokenType::AuthHeader(1)), "authorization", "Bearer t"),
        (Some(TokenType::CustomHeader("x-token".to_owned())), "x-token", "t"),
    ] {
        setting.tls.token_type = kind;
        ask(&setting.remote()).await.unwrap();
        assert_eq!(setting.sent(header).await, value);
    }
}

#[tokio::test]
async fn an_endpoint_may_want_another_grant_type() {
    let (issuer, _) = Issuer::start(MANY, |count, _| token(count)).await;
    let mut setting = Setting::new(&issuer).await;
    setting.change(|oauth| oauth.endpoint_params = [("grant_type".to_owned(), "other".to_owned())].into());
    ask(&setting.remote()).await.unwrap();
    assert_eq!(issuer.asked()[0].form["grant_type"], "other");
}

#[tokio::test]
async fn a_server_that_wants_the_credentials_as_parameters_gets_them_there() {
    let (issuer, _) = Issuer::start(MANY, |count, asked| match asked.authorization {
        Some(_) => (401, r#"{"error":"invalid_client"}"#.to_owned()),
        None => (200, format!(r#"{{"access_token":"t{count}","expires_in":0.1}}"#)),
    })
    .await;
    let mut setting = Setting::new(&issuer).await;
    let remote = setting.remote();
    ask(&remote).await.unwrap();
    assert_eq!(setting.sent("authorization").await, "Bearer t2");
    let second = &issuer.asked()[1];
    assert_eq!((&second.form["client_id"][..], &second.form["client_secret"][..]), ("me:1", "p@ss"));
    tokio::time::sleep(Duration::from_millis(120)).await;
    ask(&remote).await.unwrap();
    assert_eq!(issuer.asked().len(), 3, "what the server wants is remembered");
}

#[tokio::test]
async fn without_a_token_calls_are_unavailable_and_say_why_but_no_secret() {
    let answers = [
        (
            400,
            r#"{"error":"invalid_scope","error_description":"no such scope"}"#,
            "400 Bad Request invalid_scope no such scope",
        ),
        (500, "p@ss", "500 Internal Server Error"),
        (200, "<html>p@ss", "not JSON"),
        (200, r#"{"token_type":"bearer","refresh_token":"p@ss"}"#, "not JSON with an access_token"),
        (200, r#"{"access_token":"p@ss\nx"}"#, "a character that no header can carry"),
        (200, r#"{"access_token":""}"#, "holds no token"),
        (302, "", "302 Found"),
    ];
    for (status, body, text) in answers {
        let (issuer, _) = Issuer::start(MANY, move |_, _| (status, body.to_owned())).await;
        let mut setting = Setting::new(&issuer).await;
        let error = ask(&setting.remote()).await.unwrap_err();
        assert_eq!(error.code(), Code::Unavailable);
        let from = format!(
            "connection.authentication.tls.oauth.token_url: no token from http://{}/token: ",
            issuer.address
        );
        assert!(error.message().starts_with(&from), "{error:?}");
        assert!(error.message().contains(text) && !error.message().contains("p@ss"), "{error:?}");
        assert!(setting.to.server.rest().is_empty(), "no call without its token");
    }
}

#[tokio::test]
async fn a_failure_is_not_asked_for_again_by_every_call_and_passes() {
    let working = Arc::new(AtomicUsize::new(0));
    let works = working.clone();
    let (issuer, _) = Issuer::start(MANY, move |count, _| match works.load(SeqCst) {
        0 => (503, String::new()),
        _ => token(count),
    })
    .await;
    let setting = Setting::new(&issuer).await;
    let longest = Duration::from_millis(100);
    let options = Options { reconnect: Backoff { first: longest, longest }, ..quick() };
    let remote = RemoteAdapter::new(&setting.connection(), &options, &Handle::current()).unwrap();
    let before = Instant::now();
    for _ in 0..50 {
        ask(&remote).await.unwrap_err();
    }
    let rests = before.elapsed().as_millis() / 100;
    assert!(issuer.asked().len() as u128 <= 1 + rests);
    working.store(1, SeqCst);
    until(async || ask(&remote).await.is_ok()).await;
}

/// Deadlines are shorter than logins: one that was begun is finished for the calls to come.
#[tokio::test]
async fn a_token_that_takes_longer_than_its_call_is_there_for_the_next() {
    let (issuer, permitted) = Issuer::start(0, |count, _| token(count)).await;
    let setting = Setting::new(&issuer).await;
    let remote = setting.remote();
    for _ in 0..3 {
        let deadline = Some(Instant::now() + Duration::from_millis(20));
        let error = remote.call(&check(), request(None), deadline).await.unwrap_err();
        assert_eq!(error.code(), Code::DeadlineExceeded);
    }
    permitted.add_permits(1);
    ask(&remote).await.unwrap();
    assert_eq!(issuer.asked().len(), 1);
}

#[tokio::test]
async fn tokens_come_over_tls_from_a_server_that_the_handler_trusts() {
    let (authority, stranger, files) = (Authority::new(), Authority::new(), Files::new());
    let ca = files.write("ca.pem", &authority.pem());
    for (issued_by, granted) in [(&authority, true), (&stranger, false)] {
        let issuer = super::pki::https(&issued_by.issue(&["localhost"]), token(1).1).await;
        let to = secured(&authority.issue(&["adapter.example"]), None, |_| Act::ok(b"")).await;
        let oauth = OAuth {
            client_id: "me".to_owned(),
            client_secret: files.write("secret", "p@ss"),
            token_url: format!("https://localhost:{}/token", issuer.port()),
            ..OAuth::default()
        };
        let tls = Tls {
            ca_certificates: ca.clone(),
            token_source: Some(TokenSource::Oauth(oauth)),
            token_type: None,
            server_name: "adapter.example".to_owned(),
        };
        let setting = Setting { to, files: Files::new(), tls };
        let answer = ask(&setting.remote()).await;
        assert_eq!(answer.is_ok(), granted, "{answer:?}");
        if let Err(error) = answer {
            assert!(error.message().contains("UnknownIssuer"), "{error:?}");
        }
    }
}
