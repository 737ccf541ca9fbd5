//! TLS with a token from a file.

use std::net::SocketAddr;

use tokio::runtime::Handle;
use tonic::Code;

use super::{
    check, connection,
    pki::{Authority, Files, secured, secured_on},
    port, quick, request,
    scripted::{Act, Scripted},
    soon, until,
};
use crate::remote::{RemoteAdapter, settings::Settings};
use mixer_adapter_config::proto::istio::policy::v1beta1::{
    Authentication, Connection, Mutual, OAuth, Tls,
    authentication::AuthType,
    tls::{AuthHeader, TokenSource, TokenType},
};

/// A connection with a token in a file, as a bearer's.
fn with_token(address: SocketAddr, ca_certificates: String, token_path: String) -> (Connection, Tls) {
    let tls = Tls {
        ca_certificates,
        token_source: Some(TokenSource::TokenPath(token_path)),
        token_type: Some(TokenType::AuthHeader(AuthHeader::Bearer as i32)),
        server_name: "adapter.example".to_owned(),
    };
    (over(address, tls.clone()), tls)
}

fn over(address: impl ToString, tls: Tls) -> Connection {
    let authentication = Some(Authentication { auth_type: Some(AuthType::Tls(tls)) });
    Connection { authentication, ..connection(address) }
}

fn remote(connection: &Connection) -> RemoteAdapter {
    RemoteAdapter::new(connection, &quick(), &Handle::current()).unwrap()
}

async fn ask(remote: &RemoteAdapter) -> Result<bytes::Bytes, tonic::Status> {
    soon(remote.call(&check(), request(None), None)).await
}

#[tokio::test]
async fn calls_go_over_tls_with_the_token_and_the_servers_name() {
    let (authority, files) = (Authority::new(), Files::new());
    let mut to = secured(&authority.issue(&["adapter.example"]), None, |_| Act::ok(b"")).await;
    let ca = files.write("ca.pem", &authority.pem());
    // Files end in a newline, which no header may hold: the original sent it and failed.
    let (connection, _) = with_token(to.server.address, ca, files.write("token", "s3cret\r\n"));
    ask(&remote(&connection)).await.unwrap();
    let seen = to.server.next().await;
    assert_eq!(seen.header("authorization"), Some("Bearer s3cret"));
    let uri = seen.head.uri();
    assert_eq!((uri.scheme_str(), uri.authority().unwrap().as_str()), (Some("https"), "adapter.example"));
    assert_eq!(to.shown.lock().unwrap()[0].0.as_deref(), Some("adapter.example"));
}

#[tokio::test]
async fn a_token_goes_plain_or_into_a_header_of_its_own() {
    let (authority, files) = (Authority::new(), Files::new());
    let mut to = secured(&authority.issue(&["adapter.example"]), None, |_| Act::ok(b"")).await;
    let ca = files.write("ca.pem", &authority.pem());
    let (_, tls) = with_token(to.server.address, ca, files.write("token", "s3cret"));
    for (kind, header) in [
        (TokenType::AuthHeader(AuthHeader::Plain as i32), "authorization"),
        (TokenType::CustomHeader("X-Api-Key".to_owned()), "x-api-key"),
    ] {
        let tls = Tls { token_type: Some(kind), ..tls.clone() };
        ask(&remote(&over(to.server.address, tls))).await.unwrap();
        assert_eq!(to.server.next().await.header(header), Some("s3cret"));
    }
}

#[tokio::test]
async fn without_a_server_name_the_address_must_be_in_the_certificate() {
    let (authority, files) = (Authority::new(), Files::new());
    let mut to = secured(&authority.issue(&["127.0.0.1"]), None, |_| Act::ok(b"")).await;
    let ca = files.write("ca.pem", &authority.pem());
    let (_, tls) = with_token(to.server.address, ca, files.write("token", "s3cret"));
    let tls = Tls { server_name: String::new(), ..tls };
    ask(&remote(&over(to.server.address, tls))).await.unwrap();
    let authority = to.server.next().await.head.uri().authority().unwrap().to_string();
    assert_eq!(authority, to.server.address.to_string());
}

#[tokio::test]
async fn a_server_that_cannot_be_trusted_is_unavailable_and_gets_no_token() {
    let (authority, stranger, files) = (Authority::new(), Authority::new(), Files::new());
    let (ca, token) = (files.write("ca.pem", &authority.pem()), files.write("token", "s3cret"));
    for (certified, text) in [
        (stranger.issue(&["adapter.example"]), "UnknownIssuer"),
        (authority.issue(&["other.example"]), "not valid for name"),
    ] {
        let mut to = secured(&certified, None, |_| Act::ok(b"")).await;
        let (connection, _) = with_token(to.server.address, ca.clone(), token.clone());
        let error = ask(&remote(&connection)).await.unwrap_err();
        assert_eq!(error.code(), Code::Unavailable);
        assert!(error.message().contains(text), "{error:?}");
        assert!(to.server.rest().is_empty());
    }
    let mut in_the_clear = Scripted::start(|_| Act::ok(b"")).await;
    let (connection, _) = with_token(in_the_clear.address, ca, token);
    assert_eq!(ask(&remote(&connection)).await.unwrap_err().code(), Code::Unavailable);
    assert!(in_the_clear.rest().is_empty());
}

#[tokio::test]
async fn a_token_that_changes_is_sent_and_one_that_cannot_be_read_is_not_forgotten() {
    let (authority, files) = (Authority::new(), Files::new());
    let mut to = secured(&authority.issue(&["adapter.example"]), None, |_| Act::ok(b"")).await;
    let ca = files.write("ca.pem", &authority.pem());
    let (connection, _) = with_token(to.server.address, ca, files.write("token", "first"));
    let remote = remote(&connection);
    let mut sent = async || {
        ask(&remote).await.unwrap();
        to.server.next().await.header("authorization").unwrap().to_owned()
    };
    assert_eq!(sent().await, "Bearer first");
    files.write("token", "second\n");
    assert_eq!(sent().await, "Bearer second");
    for unusable in ["", "\n", "two\nlines"] {
        files.write("token", unusable);
        assert_eq!(sent().await, "Bearer second", "{unusable:?}");
    }
    std::fs::remove_file(files.path("token")).unwrap();
    assert_eq!(sent().await, "Bearer second");
    files.write("token", "third");
    assert_eq!(sent().await, "Bearer third");
}

#[tokio::test]
async fn changed_certificates_are_used_for_the_next_connection() {
    let (old, new, files) = (Authority::new(), Authority::new(), Files::new());
    let (ca, token) = (files.write("ca.pem", &old.pem()), files.write("token", "s3cret"));
    let port = port();
    let first = secured_on(&port, &old.issue(&["adapter.example"]), None, |_| Act::ok(b"old")).await;
    let (connection, _) = with_token(port.address, ca, token);
    let remote = remote(&connection);
    assert_eq!(ask(&remote).await.unwrap(), "old");
    // In the middle of being replaced: the former content stays in use.
    files.write("ca.pem", "-----BEGIN CERT");
    drop(first);
    let again = secured_on(&port, &old.issue(&["adapter.example"]), None, |_| Act::ok(b"again")).await;
    until(async || ask(&remote).await.is_ok_and(|answer| answer == "again")).await;
    drop(again);
    files.write("ca.pem", &new.pem());
    let _last = secured_on(&port, &new.issue(&["adapter.example"]), None, |_| Act::ok(b"new")).await;
    until(async || ask(&remote).await.is_ok_and(|answer| answer == "new")).await;
}

/// Files of a connection over TLS, and the connection's settings with all of them.
struct GoodConnection {
    files: Files,
    tls: Tls,
}

impl GoodConnection {
    fn new() -> Self {
        let (authority, files) = (Authority::new(), Files::new());
        let ca = files.write("ca.pem", &authority.pem());
        let token = files.write("token", "s3cret");
        let (_, tls) = with_token(([127, 0, 0, 1], 9091).into(), ca, token);
        Self { files, tls }
    }

    fn with(&self, change: &dyn Fn(&mut Tls)) -> Connection {
        let mut tls = self.tls.clone();
        change(&mut tls);
        over("adapter:9091", tls)
    }

    fn with_oauth(&self, change: &dyn Fn(&mut OAuth)) -> Connection {
        let mut oauth = OAuth {
            client_id: "me".to_owned(),
            client_secret: self.files.write("secret", "s3cret"),
            token_url: "https://login.example/token".to_owned(),
            ..OAuth::default()
        };
        change(&mut oauth);
        self.with(&|tls| tls.token_source = Some(TokenSource::Oauth(oauth.clone())))
    }
}

#[test]
fn faults_of_a_connection_name_its_fields() {
    let good = GoodConnection::new();
    let tls = |change: &dyn Fn(&mut Tls)| good.with(change);
    let oauth = |change: &dyn Fn(&mut OAuth)| good.with_oauth(change);
    let mutual = |mutual| Connection {
        authentication: Some(Authentication { auth_type: Some(AuthType::Mutual(mutual)) }),
        ..connection("adapter:9091")
    };
    let without_type =
        Connection { authentication: Some(Authentication { auth_type: None }), ..connection("adapter:9091") };
    let timeout = |seconds, nanos| Connection {
        timeout: Some(prost_types::Duration { seconds, nanos }),
        ..connection("adapter:9091")
    };

    let cases = [
        (connection(""), "connection.address: is missing"),
        (timeout(0, 0), "connection.timeout: must be longer than 0s"),
        (timeout(-1, 0), "connection.timeout: must be longer than 0s"),
        (without_type, "connection.authentication: names neither tls nor mutual"),
        (tls(&|tls| tls.token_source = None), "connection.authentication.tls: needs token_path or oauth"),
        (tls(&|tls| tls.token_type = None), "connection.authentication.tls: token_path needs auth_header"),
        (
            tls(&|tls| tls.token_source = Some(TokenSource::TokenPath(String::new()))),
            "connection.authentication.tls.token_path: is missing",
        ),
        (
            tls(&|tls| tls.token_type = Some(TokenType::AuthHeader(7))),
            "connection.authentication.tls.auth_header: 7 is neither PLAIN nor BEARER",
        ),
        (
            tls(&|tls| tls.token_type = Some(TokenType::CustomHeader("grpc-timeout".to_owned()))),
            "connection.authentication.tls.custom_header: a token cannot be sent as \"grpc-timeout\"",
        ),
        (
            tls(&|tls| tls.token_type = Some(TokenType::CustomHeader("x y".to_owned()))),
            "connection.authentication.tls.custom_header: a token cannot be sent as \"x y\"",
        ),
        (
            tls(&|tls| tls.server_name = "no name".to_owned()),
            "connection.authentication.tls.server_name: \"no name\" is neither a DNS name",
        ),
        (
            oauth(&|oauth| oauth.client_id.clear()),
            "connection.authentication.tls.oauth.client_id: is missing",
        ),
        (
            oauth(&|oauth| oauth.client_secret.clear()),
            "connection.authentication.tls.oauth.client_secret: is missing",
        ),
        (
            oauth(&|oauth| oauth.token_url.clear()),
            "connection.authentication.tls.oauth.token_url: is missing",
        ),
        (
            oauth(&|oauth| oauth.token_url = "http://login.example/token".to_owned()),
            "connection.authentication.tls.oauth.token_url: would send the secret in the clear",
        ),
        (
            oauth(&|oauth| oauth.token_url = "https://me:s3cret@login.example/".to_owned()),
            "connection.authentication.tls.oauth.token_url: must not hold a user",
        ),
        (
            oauth(&|oauth| {
                drop(oauth.endpoint_params.insert("client_secret".to_owned(), "s3cret".to_owned()));
            }),
            "connection.authentication.tls.oauth.endpoint_params: \"client_secret\" has a field of its own",
        ),
        (
            mutual(Mutual::default()),
            "connection.authentication.mutual.private_key: is missing: the path of a file; \
             connection.authentication.mutual.client_certificate: is missing",
        ),
    ];
    for (connection, text) in &cases {
        let error = Settings::read(connection).unwrap_err().to_string();
        assert!(error.starts_with(text), "{error:?} instead of {text:?}");
        assert!(!error.contains("s3cret"), "{error:?}");
    }
}

#[tokio::test]
async fn faults_of_a_connections_files_name_its_fields() {
    let good = GoodConnection::new();
    let tls = |change: &dyn Fn(&mut Tls)| good.with(change);
    let oauth = |change: &dyn Fn(&mut OAuth)| good.with_oauth(change);
    let (files, missing) = (&good.files, good.files.path("missing").to_str().unwrap().to_owned());
    let no_pem = files.write("text", "hello");
    let cases = [
        (tls(&|tls| tls.ca_certificates = missing.clone()), "tls.ca_certificates: "),
        (tls(&|tls| tls.ca_certificates = no_pem.clone()), "tls.ca_certificates: holds no certificate (PEM)"),
        (tls(&|tls| tls.token_source = Some(TokenSource::TokenPath(missing.clone()))), "tls.token_path: "),
        (
            tls(&|tls| tls.token_source = Some(TokenSource::TokenPath(files.write("empty", "\n")))),
            "tls.token_path: holds no token",
        ),
        (oauth(&|oauth| oauth.client_secret = missing.clone()), "tls.oauth.client_secret: "),
    ];
    for (connection, text) in &cases {
        assert!(Settings::read(connection).is_ok());
        let error = RemoteAdapter::new(connection, &quick(), &Handle::current()).unwrap_err().to_string();
        let (field, reason) = text.split_once(": ").unwrap();
        assert!(error.starts_with(&format!("connection.authentication.{field}: ")), "{error:?}");
        assert!(error.contains(reason), "{error:?}");
    }
}

#[tokio::test]
async fn nothing_secret_is_shown() {
    let (authority, files) = (Authority::new(), Files::new());
    let ca = files.write("ca.pem", &authority.pem());
    let (connection, mut tls) = with_token(([127, 0, 0, 1], 9091).into(), ca, files.write("token", "s3cret"));
    assert!(!format!("{:?}", remote(&connection)).contains("s3cret"));
    tls.token_source = Some(TokenSource::Oauth(OAuth {
        client_id: "me".to_owned(),
        client_secret: files.write("secret", "s3cret"),
        token_url: "https://login.example/token?key=s3cret".to_owned(),
        scopes: Vec::new(),
        endpoint_params: [("password".to_owned(), "s3cret".to_owned())].into(),
    }));
    assert!(!format!("{:?}", remote(&over("adapter:9091", tls))).contains("s3cret"));
}
