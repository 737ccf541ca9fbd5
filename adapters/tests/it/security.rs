//! The clients that may call the services of the gRPC port, by the flags of `serve`.

use crate::support::{Server, run};
use mixer_adapter_config::proto::istio::policy::v1beta1::{
    Authentication, Connection, Mutual, Tls,
    authentication::AuthType,
    tls::{AuthHeader, TokenSource, TokenType},
};
use mixer_adapter_engine::remote::{Options, RemoteAdapter};
use serde_json::json;
use test_pki::{Authority, Files, Issuer, unsigned};
use tokio::runtime::{Builder, Handle};
use tonic::Code;

const NAME: &str = "server.example.com";
/// A client with mutual TLS expects a server with one of its own names.
const SERVER: &str = "spiffe://cluster.local/ns/istio-system/sa/istio-mixer-service-account";
const MIXER: &str = "spiffe://cluster.local/ns/istio-system/sa/mixer";
const PROXY: &str = "spiffe://cluster.local/ns/shop/sa/proxy";
const STRANGER: &str = "spiffe://cluster.local/ns/shop/sa/stranger";

/// A method of each group; with an empty request all are answered but for reflection, whose requests are a stream.
const METHODS: [(&str, &str); 5] = [
    ("templates", "/checknothing.HandleCheckNothingService/HandleCheckNothing"),
    ("sessions", "/istio.mixer.adapter.model.v1beta1.InfrastructureBackend/CloseSession"),
    ("mixer", "/istio.mixer.v1.Mixer/Check"),
    ("explain", "/mixer_adapter.v1.Explain/Check"),
    ("envoy", "/envoy.service.auth.v3.Authorization/Check"),
];

struct Port {
    server: Server,
    authority: Authority,
    files: Files,
}

impl Port {
    /// Serves TLS, with further flags that may name files.
    fn start(flags: impl FnOnce(&Files) -> Vec<String>) -> Self {
        let (files, authority) = (Files::new(), Authority::new());
        let own = authority.issue(&[NAME, SERVER]);
        files.write("ca.pem", &authority.pem());
        let (chain, key) = (files.write("cert.pem", &own.certificate), files.write("key.pem", &own.key));
        let flags = flags(&files);
        let own = ["--tls-cert-file", &chain, "--tls-key-file", &key];
        let flags: Vec<&str> = own.into_iter().chain(flags.iter().map(String::as_str)).collect();
        let server = Server::start(&flags);
        server.until("/readyz", "\r\n\r\nready");
        Self { server, authority, files }
    }

    fn authorities(&self) -> String {
        self.files.path("ca.pem").to_str().unwrap().to_owned()
    }

    /// A client with a certificate of that name.
    fn certificate(&self, name: &str) -> AuthType {
        let own = self.authority.issue(&[name, SERVER]);
        AuthType::Mutual(Mutual {
            private_key: self.files.write("client-key.pem", &own.key),
            client_certificate: self.files.write("client.pem", &own.certificate),
            ca_certificates: self.authorities(),
            server_name: NAME.to_owned(),
        })
    }

    /// A client with many authorities that sign each other and have the name of the one that the server trusts.
    fn imitation(&self) -> AuthType {
        let own = self.authority.imitated(&[MIXER, SERVER], 30);
        AuthType::Mutual(Mutual {
            private_key: self.files.write("imitation-key.pem", &own.key),
            client_certificate: self.files.write("imitation.pem", &own.certificate),
            ca_certificates: self.authorities(),
            server_name: NAME.to_owned(),
        })
    }

    /// A client with a bearer token.
    fn token(&self, token: &str) -> AuthType {
        AuthType::Tls(Tls {
            ca_certificates: self.authorities(),
            token_source: Some(TokenSource::TokenPath(self.files.write("client-token", token))),
            token_type: Some(TokenType::AuthHeader(AuthHeader::Bearer as i32)),
            server_name: NAME.to_owned(),
        })
    }

    /// The code and message of a call with an empty request, as the engine calls adapters.
    fn call(&self, method: &'static str, client: Option<AuthType>) -> (Code, String) {
        let connection = Connection {
            address: self.server.grpc.clone(),
            authentication: client.map(|auth_type| Authentication { auth_type: Some(auth_type) }),
            ..Connection::default()
        };
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let remote = RemoteAdapter::new(&connection, &Options::default(), &Handle::current()).unwrap();
            match remote.call(&method.parse().unwrap(), Default::default(), None).await {
                Ok(_) => (Code::Ok, String::new()),
                Err(status) => (status.code(), status.message().to_owned()),
            }
        })
    }

    /// The groups that a client may not call; fails if it is not authenticated.
    fn refused(&self, client: &AuthType) -> Vec<&'static str> {
        let is_refused = |method| match self.call(method, Some(client.clone())) {
            (Code::PermissionDenied, message) if message.contains("may not call this service") => true,
            (Code::Unauthenticated, message) => panic!("{method}: {message}"),
            (_, message) if message.contains("cannot be reached") => panic!("{method}: {message}"),
            _ => false,
        };
        METHODS.into_iter().filter(|(_, method)| is_refused(method)).map(|(group, _)| group).collect()
    }
}

const TOKENS: &str = "envoy t0ken\nother 0ther\n";

#[test]
fn certificates_and_tokens_may_call_what_flags_allow_them() {
    let port = Port::start(|files| {
        let tokens = files.write("tokens", TOKENS);
        let authorities = files.path("ca.pem").to_str().unwrap().to_owned();
        let allow = format!("explain={MIXER},envoy=envoy,sessions={MIXER},sessions=other");
        let sans = format!("{MIXER},{PROXY}");
        [
            "--tls-client-ca-file",
            &authorities,
            "--client-san",
            &sans,
            "--token-file",
            &tokens,
            "--allow",
            &allow,
        ]
        .map(str::to_owned)
        .into()
    });
    assert_eq!(port.refused(&port.certificate(MIXER)), ["envoy"]);
    assert_eq!(port.refused(&port.certificate(PROXY)), ["sessions", "explain", "envoy"]);
    assert_eq!(port.refused(&port.token("t0ken")), ["sessions", "explain"]);
    assert_eq!(port.refused(&port.token("0ther")), ["explain", "envoy"]);
    let refusal = "the client has to show an allowed certificate or a valid token";
    for (group, method) in METHODS {
        for client in [port.certificate(STRANGER), port.token("t0kem")] {
            let answer = port.call(method, Some(client));
            assert_eq!(answer, (Code::Unauthenticated, refusal.to_owned()), "{group}");
        }
        // Without TLS there is no HTTP/2 at all.
        assert_eq!(port.call(method, None).0, Code::Unavailable, "{group}");
    }
    // Tokens are read again at SIGHUP.
    port.files.write("tokens", "envoy n3w\n");
    port.server.signal("HUP");
    let envoy = METHODS[4].1;
    crate::support::eventually("the new token is valid", || {
        (port.call(envoy, Some(port.token("n3w"))).0 != Code::Unauthenticated).then_some(())
    });
    assert_eq!(port.call(envoy, Some(port.token("t0ken"))).0, Code::Unauthenticated);
}

#[test]
fn clients_are_served_while_strangers_show_authorities_that_sign_each_other() {
    let port = Port::start(|files| {
        let authorities = files.path("ca.pem").to_str().unwrap().to_owned();
        ["--tls-client-ca-file", &authorities, "--client-san", MIXER].map(str::to_owned).into()
    });
    let (method, imitation) = (METHODS[0].1, port.imitation());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..20 {
                    assert_eq!(port.call(method, Some(imitation.clone())).0, Code::Unavailable);
                }
            });
        }
        for _ in 0..10 {
            assert_eq!(port.call(method, Some(port.certificate(MIXER))).0, Code::FailedPrecondition);
        }
    });
}

#[test]
fn json_web_tokens_are_those_of_the_issuer_for_the_audience() {
    let (issuer, other) = (Issuer::new("1"), Issuer::new("1"));
    let keys = json!({ "keys": [issuer.jwk()] }).to_string();
    let port = Port::start(|files| {
        let keys = files.write("jwks.json", &keys);
        let issuer = "https://issuer.example.com";
        [
            "--jwks",
            &keys,
            "--jwt-issuer",
            issuer,
            "--jwt-audience",
            "mixer,adapters",
            "--allow",
            "explain=alice",
        ]
        .map(str::to_owned)
        .into()
    });
    let claims = |subject: &str, audience: &str| json!({ "iss": "https://issuer.example.com", "sub": subject, "aud": audience, "exp": u32::MAX });
    let good = claims("alice", "adapters");
    assert_eq!(port.refused(&port.token(&issuer.issue(&good))), [""; 0]);
    assert_eq!(port.refused(&port.token(&issuer.issue(&claims("bob", "mixer")))), ["explain"]);
    let mut foreign = good.clone();
    foreign["iss"] = json!("https://other.example.com");
    let mut old = good.clone();
    old["exp"] = json!(1);
    for (what, token) in [
        ("another key", other.issue(&good)),
        ("another audience", issuer.issue(&claims("alice", "others"))),
        ("another issuer", issuer.issue(&foreign)),
        ("expired", issuer.issue(&old)),
        ("not signed", format!("{}.", unsigned(&json!({ "alg": "none" }), &good))),
    ] {
        let answer = port.call(METHODS[0].1, Some(port.token(&token)));
        assert_eq!(answer.0, Code::Unauthenticated, "{what}");
    }
}

#[test]
fn flags_that_protect_nothing_are_errors() {
    for (flags, error) in [
        (
            &["--allow", "explain=alice"][..],
            "error: --allow needs clients that are authenticated: add --tls-client-ca-file, --token-file or --jwks\n",
        ),
        (
            &["--token-file", "$TOKENS", "--allow", "explane=alice"],
            "error: unknown group \"explane\" in --allow; write one of templates, sessions, mixer, explain, reflection, envoy\n",
        ),
    ] {
        let files = Files::new();
        let tokens = files.write("tokens", TOKENS);
        let flags: Vec<&str> =
            flags.iter().map(|flag| if *flag == "$TOKENS" { &tokens } else { *flag }).collect();
        let ran =
            run(&[&["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"], &flags[..]].concat());
        assert_eq!((ran.code, ran.stderr.as_str()), (2, error), "{flags:?}");
    }
    for flags in
        [&["--tls-cert-file", "cert.pem"][..], &["--tls-key-file", "key.pem"], &["--client-san", MIXER]]
    {
        let ran = run(&[&["serve"], flags].concat());
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.stderr.contains("required arguments were not provided"), "{ran:?}");
    }
}
