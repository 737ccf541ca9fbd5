//! Who may connect to the gRPC port, and call what: with the client of the engine, which authenticates as a real Mixer does.

use std::sync::Arc;

use bytes::Bytes;
use mixer_adapter::{
    prost::Message as _,
    proto::CheckResult,
    service::{Authorization, JwtOptions, JwtVerifier, Server, ServerOptions, Tokens, Workers},
    template::{ListEntry, Template as _},
    tonic::{Code, Status},
};
use mixer_adapter_config::proto::istio::policy::v1beta1::{
    Authentication, Connection, Mutual, OAuth, Tls,
    authentication::AuthType,
    tls::{AuthHeader, TokenSource, TokenType},
};
use mixer_adapter_engine::remote::{Options, RemoteAdapter};
use mixer_adapter_host::{
    Host,
    handler::{Adapters, Closing, TableLimits},
};
use mixer_adapter_net::tls;
use test_adapters::Probe;
use test_pki::{Authority, Files, Issuer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::{
    net::{TcpListener, TcpStream},
    runtime::Handle,
};

use super::{
    requests::{entry, probe, session},
    support::{Serving, any},
};

const MIXER: &str = "spiffe://cluster.local/ns/istio-system/sa/istio-mixer-service-account";
const OTHER: &str = "spiffe://cluster.local/ns/default/sa/other";

/// Groups as those of the server.
fn group_of(path: &str) -> Option<&'static str> {
    if path.contains("InfrastructureBackend") { Some("sessions") } else { Some("templates") }
}

struct Port {
    authority: Authority,
    files: Files,
    serving: Serving,
}

/// Serves TLS with a certificate for the name of Mixer and for `adapter.example`.
async fn port(
    clients: bool,
    optional_certificates: bool,
    authorization: impl FnOnce(&Files) -> Authorization,
) -> Port {
    let (authority, files) = (Authority::new(), Files::new());
    let own = authority.issue(&["adapter.example", MIXER]);
    let ca = files.write("ca.pem", &authority.pem());
    let options = tls::ServerOptions {
        identity: tls::KeyPair {
            certificate: files.write("server.pem", &own.certificate).into(),
            key: files.write("server-key.pem", &own.key).into(),
        },
        client_authorities: clients.then(|| ca.into()),
        optional_certificates,
        http1: false,
    };
    let security = tls::Server::load(options).unwrap();
    let authorization = Arc::new(authorization(&files));
    let adapters = Adapters::builder(Handle::current()).add::<Probe>().build().unwrap();
    let host = Arc::new(Host::new(adapters, TableLimits::default(), Closing::on(Handle::current())));
    let server = Server::new(host.clone(), ServerOptions::default());
    let serving =
        Serving::server(&Workers::here(), host, server.secured(Some(security), authorization)).await;
    Port { authority, files, serving }
}

impl Port {
    /// A client with `mutual` authentication and a certificate for that name.
    fn mutual(&self, name: &str) -> AuthType {
        let own = self.authority.issue(&[name, MIXER]);
        let name = if name == MIXER { "mixer" } else { "other" };
        AuthType::Mutual(Mutual {
            private_key: self.files.write(&format!("{name}-key.pem"), &own.key),
            client_certificate: self.files.write(&format!("{name}.pem"), &own.certificate),
            ca_certificates: self.files.path("ca.pem").to_str().unwrap().to_owned(),
            server_name: "adapter.example".to_owned(),
        })
    }

    /// A client with a token.
    fn token(&self, token: &str, token_type: TokenType) -> AuthType {
        AuthType::Tls(Tls {
            ca_certificates: self.files.path("ca.pem").to_str().unwrap().to_owned(),
            token_source: Some(TokenSource::TokenPath(self.files.write("token", token))),
            token_type: Some(token_type),
            server_name: "adapter.example".to_owned(),
        })
    }

    /// A client with a token that it asks a token server for.
    async fn oauth(&self, token: &str) -> AuthType {
        AuthType::Tls(Tls {
            ca_certificates: self.files.path("ca.pem").to_str().unwrap().to_owned(),
            token_source: Some(TokenSource::Oauth(OAuth {
                client_id: "mixer".to_owned(),
                client_secret: self.files.write("secret", "s3cret"),
                token_url: token_server(token).await,
                ..OAuth::default()
            })),
            token_type: None,
            server_name: "adapter.example".to_owned(),
        })
    }

    async fn call(&self, path: &'static str, message: Bytes, auth_type: AuthType) -> Result<Bytes, Status> {
        call(&self.serving, path, message, Some(auth_type)).await
    }

    async fn check(&self, auth_type: AuthType) -> Result<Bytes, Status> {
        self.call(ListEntry::METHOD, check_request(), auth_type).await
    }
}

fn check_request() -> Bytes {
    entry(any(&probe("security")), "allow").encode_to_vec().into()
}

/// Calls a server with the client of the engine.
async fn call(
    serving: &Serving,
    path: &'static str,
    message: Bytes,
    auth_type: Option<AuthType>,
) -> Result<Bytes, Status> {
    let connection = Connection {
        address: serving.grpc.to_string(),
        authentication: auth_type.map(|auth_type| Authentication { auth_type: Some(auth_type) }),
        ..Connection::default()
    };
    let remote = RemoteAdapter::new(&connection, &Options::default(), &Handle::current()).unwrap();
    remote.call(&path.parse().unwrap(), message, None).await
}

/// Starts a server of OAuth tokens that has one for every client. Returns its URL.
async fn token_server(token: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/token", listener.local_addr().unwrap());
    let body = format!(r#"{{"access_token": "{token}", "token_type": "Bearer", "expires_in": 3600}}"#);
    let length = body.len();
    let response = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).await;
            let _ = stream.write_all(response.as_bytes()).await;
        }
    });
    url
}

fn code(result: Result<Bytes, Status>) -> Code {
    result.map_or_else(|status| status.code(), |_| Code::Ok)
}

const BEARER: TokenType = TokenType::AuthHeader(AuthHeader::Bearer as i32);
const PLAIN: TokenType = TokenType::AuthHeader(AuthHeader::Plain as i32);

#[tokio::test]
async fn a_mixer_with_mutual_tls_is_served() {
    let port = port(true, false, |_| Authorization::open(group_of).with_certificates(Vec::new())).await;
    assert_eq!(code(port.check(port.mutual(MIXER)).await), Code::Ok);
}

#[tokio::test]
async fn only_certificates_with_an_allowed_san_are_served() {
    let sans = vec!["spiffe://cluster.local/ns/x/sa/nobody".to_owned(), OTHER.to_owned()];
    let port = port(true, false, |_| Authorization::open(group_of).with_certificates(sans)).await;
    assert_eq!(code(port.check(port.mutual(OTHER)).await), Code::Ok);
    let refusal = port.check(port.mutual(MIXER)).await.unwrap_err();
    assert_eq!(refusal.code(), Code::Unauthenticated);
    assert_eq!(refusal.message(), "the client has to show an allowed certificate");
}

#[tokio::test]
async fn a_mixer_with_a_token_is_served_however_it_sends_it() {
    let tokens = |files: &Files| {
        let file = files.write("tokens", "# clients\nmixer s3cret\n\nother t0ken\n");
        Tokens::load(file.into(), None).unwrap()
    };
    let port = port(false, false, |files| Authorization::open(group_of).with_tokens(tokens(files))).await;
    assert_eq!(code(port.check(port.token("s3cret", BEARER)).await), Code::Ok);
    assert_eq!(code(port.check(port.token("t0ken\n", PLAIN)).await), Code::Ok);
    let refusal = port.check(port.token("s3cre", BEARER)).await.unwrap_err();
    assert_eq!(refusal.code(), Code::Unauthenticated);
    assert_eq!(refusal.message(), "the client has to show a valid token");
}

#[tokio::test]
async fn a_token_may_be_in_a_header_of_its_own() {
    let header = || Some("x-api-key".parse().unwrap());
    let port = port(false, false, |files| {
        let tokens = Tokens::load(files.write("tokens", "mixer s3cret").into(), header()).unwrap();
        Authorization::open(group_of).with_tokens(tokens)
    })
    .await;
    let custom = TokenType::CustomHeader("X-Api-Key".to_owned());
    assert_eq!(code(port.check(port.token("s3cret", custom)).await), Code::Ok);
    assert_eq!(code(port.check(port.token("s3cret", BEARER)).await), Code::Unauthenticated);
}

#[tokio::test]
async fn a_mixer_with_a_token_of_a_token_server_is_served() {
    let port = port(false, false, |files| {
        let tokens = Tokens::load(files.write("tokens", "mixer s3cret").into(), None).unwrap();
        Authorization::open(group_of).with_tokens(tokens)
    })
    .await;
    assert_eq!(code(port.check(port.oauth("s3cret").await).await), Code::Ok);
    assert_eq!(code(port.check(port.oauth("other").await).await), Code::Unauthenticated);
}

#[tokio::test]
async fn a_mixer_with_a_json_web_token_is_served_by_its_subject() {
    let (issuer, other) = (Issuer::new("1"), Issuer::new("1"));
    let claims = |subject: &str| serde_json::json!({ "sub": subject, "exp": u32::MAX });
    let port = port(true, true, |files| {
        let keys = serde_json::json!({ "keys": [issuer.jwk()] }).to_string();
        let jwt = JwtVerifier::load(JwtOptions::new(files.write("jwks.json", &keys).into())).unwrap();
        let authorization = Authorization::open(group_of).with_certificates(Vec::new()).with_jwt(jwt);
        authorization.with_name("templates", "mixer".to_owned()).with_name("templates", MIXER.to_owned())
    })
    .await;
    let mixer = issuer.issue(&claims("mixer"));
    assert_eq!(code(port.check(port.token(&mixer, BEARER)).await), Code::Ok);
    assert_eq!(code(port.check(port.token(&mixer, PLAIN)).await), Code::Ok);
    assert_eq!(code(port.check(port.oauth(&mixer).await).await), Code::Ok);
    assert_eq!(code(port.check(port.mutual(MIXER)).await), Code::Ok, "certificates are accepted, too");
    let proxy = issuer.issue(&claims("proxy"));
    let refusal = port.check(port.token(&proxy, BEARER)).await.unwrap_err();
    assert_eq!(refusal.message(), "proxy may not call this service (templates)");
    let foreign = other.issue(&claims("mixer"));
    assert_eq!(code(port.check(port.token(&foreign, BEARER)).await), Code::Unauthenticated);
}

#[tokio::test]
async fn an_adapter_knows_the_name_of_the_client_that_it_serves() {
    let port = port(true, true, |files| {
        let tokens = Tokens::load(files.write("tokens", "proxy s3cret").into(), None).unwrap();
        Authorization::open(group_of).with_certificates(vec![MIXER.to_owned()]).with_tokens(tokens)
    })
    .await;
    for (auth_type, name) in [(port.mutual(MIXER), MIXER), (port.token("s3cret", BEARER), "proxy")] {
        let request = entry(any(&probe("peers")), "peer").encode_to_vec().into();
        let answer = port.call(ListEntry::METHOD, request, auth_type).await.unwrap();
        let result = CheckResult::decode(answer).unwrap();
        assert_eq!(result.status.unwrap().message, name);
    }
}

#[tokio::test]
async fn clients_may_show_a_certificate_or_a_token() {
    let port = port(true, true, |files| {
        let tokens = Tokens::load(files.write("tokens", "mixer s3cret").into(), None).unwrap();
        Authorization::open(group_of).with_certificates(Vec::new()).with_tokens(tokens)
    })
    .await;
    assert_eq!(code(port.check(port.mutual(MIXER)).await), Code::Ok);
    assert_eq!(code(port.check(port.token("s3cret", BEARER)).await), Code::Ok);
    let refusal = port.check(port.token("other", BEARER)).await.unwrap_err();
    assert_eq!(refusal.message(), "the client has to show an allowed certificate or a valid token");
}

#[tokio::test]
async fn a_group_of_services_can_be_reserved() {
    const CREATE: &str = "/istio.mixer.adapter.model.v1beta1.InfrastructureBackend/CreateSession";
    let port = port(true, false, |_| {
        let authorization = Authorization::open(group_of).with_certificates(Vec::new());
        authorization.with_name("sessions", OTHER.to_owned())
    })
    .await;
    let message = || Bytes::from(session(any(&probe("reserved"))).encode_to_vec());
    assert_eq!(code(port.call(CREATE, message(), port.mutual(OTHER)).await), Code::Ok);
    let refusal = port.call(CREATE, message(), port.mutual(MIXER)).await.unwrap_err();
    assert_eq!(refusal.code(), Code::PermissionDenied);
    assert_eq!(refusal.message(), format!("{MIXER} may not call this service (sessions)"));
    assert_eq!(code(port.check(port.mutual(MIXER)).await), Code::Ok, "other groups are open to all clients");
}

#[tokio::test]
async fn tokens_follow_their_file() {
    let port = port(false, false, |files| {
        let tokens = Tokens::load(files.write("tokens", "mixer s3cret").into(), None).unwrap();
        files.write("tokens", "mixer n3w");
        tokens.reload();
        files.write("tokens", "a line of four words");
        tokens.reload();
        Authorization::open(group_of).with_tokens(tokens)
    })
    .await;
    assert_eq!(code(port.check(port.token("n3w", BEARER)).await), Code::Ok);
    assert_eq!(code(port.check(port.token("s3cret", BEARER)).await), Code::Unauthenticated);
}

#[tokio::test]
async fn without_authentication_everybody_is_served() {
    let serving = Serving::start(|adapters| adapters.add::<Probe>()).await;
    assert_eq!(code(call(&serving, ListEntry::METHOD, check_request(), None).await), Code::Ok);
}

/// The status of a request to the admin port with these headers.
async fn admin(serving: &Serving, headers: &str) -> String {
    let mut stream = TcpStream::connect(serving.admin).await.unwrap();
    let request = format!("GET /healthz HTTP/1.1\r\n{headers}connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).await.unwrap();
    response.split(' ').nth(1).unwrap().to_owned()
}

#[tokio::test]
async fn a_loopback_admin_port_refuses_requests_of_other_sites() {
    let serving = Serving::start(|adapters| adapters.add::<Probe>()).await;
    for host in ["localhost", "localhost:15014", "127.0.0.1:80", "[::1]:15014", "127.8.9.10"] {
        assert_eq!(admin(&serving, &format!("host: {host}\r\n")).await, "200", "{host}");
    }
    for host in ["attacker.example", "attacker.example:15014", "10.0.0.1", "localhost.attacker.example"] {
        assert_eq!(admin(&serving, &format!("host: {host}\r\n")).await, "403", "{host}");
    }
    let cross_site = "host: localhost\r\nsec-fetch-site: cross-site\r\n";
    assert_eq!(admin(&serving, cross_site).await, "403");
}
