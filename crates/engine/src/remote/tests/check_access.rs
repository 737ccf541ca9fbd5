//! Limits on connections whose configuration is not the operator's.

use tokio::runtime::Handle;
use tonic::Code;

use super::{
    check, connection, quick, request,
    scripted::{Act, Scripted},
    soon,
};
use crate::remote::{Options, RemoteAdapter, Resolver, settings::Settings};
use mixer_adapter_config::proto::istio::policy::v1beta1::Connection;
use mixer_adapter_core::adapter::{Access, AccessLimits};

fn access(file_root: Option<&std::path::Path>, hosts: &str) -> Access {
    Access::limited(
        AccessLimits::default().file_root(file_root.map(Into::into)).hosts(hosts.parse().unwrap()),
    )
}

/// The fields that are refused.
fn refused(connection: &Connection, access: &Access) -> Vec<String> {
    let checked = Settings::read(connection).unwrap().check_access(access);
    let violations = checked.err().map(|errors| errors.into_violations()).unwrap_or_default();
    violations.into_iter().map(|violation| violation.field).collect()
}

#[test]
fn addresses_must_be_allowed() {
    let allowed = access(None, "adapters.example.com,192.0.2.1");
    for address in ["adapters.example.com:9091", "dns:///adapters.example.com:9091", "192.0.2.1:80"] {
        assert_eq!(refused(&connection(address), &allowed), [""; 0], "{address}");
    }
    for address in ["example.com:9091", "127.0.0.1:9091", ":9091", "[::1]:9091", "unix:/run/a.sock"] {
        assert_eq!(refused(&connection(address), &allowed), ["connection.address"], "{address}");
        assert_eq!(refused(&connection(address), &Access::unrestricted()), [""; 0], "{address}");
    }
}

#[test]
fn sockets_and_their_links_must_be_below_the_file_root() {
    let directory = tempfile::tempdir().unwrap();
    let (root, outside) = (directory.path().join("root"), directory.path().join("outside"));
    for directory in [&root, &outside] {
        std::fs::create_dir(directory).unwrap();
        std::fs::write(directory.join("a"), "").unwrap();
    }
    std::os::unix::fs::symlink(&outside, root.join("link")).unwrap();
    let limited = access(Some(&root), "");
    let refused = |path: &std::path::Path| refused(&connection(format!("unix:{}", path.display())), &limited);
    assert_eq!(refused(&root.join("a")), [""; 0]);
    assert_eq!(refused(&root.join("later")), [""; 0]);
    for path in [outside.join("a"), root.join("link/a"), root.join("../outside/a")] {
        assert_eq!(refused(&path), ["connection.address"], "{path:?}");
    }
}

#[tokio::test]
async fn a_name_that_resolves_to_this_machine_is_not_connected_to() {
    let server = Scripted::start(|_| Act::ok(b"")).await;
    let (ip, port) = (server.address, server.address.port());
    let call = async |hosts: &str| {
        let resolver = Resolver::new(move |_, _| async move { Ok(vec![ip]) });
        let options = Options { resolver, access: access(None, hosts), ..quick() };
        let connection = connection(format!("adapters.example.com:{port}"));
        let remote = RemoteAdapter::new(&connection, &options, &Handle::current()).unwrap();
        soon(remote.call(&check(), request(None), None)).await
    };
    let error = call("adapters.example.com").await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
    assert!(error.message().contains("only local addresses, which --allow-hosts does not name"), "{error}");
    call("adapters.example.com,127.0.0.1").await.unwrap();
}

#[cfg(feature = "tls")]
#[test]
fn files_that_are_read_and_hosts_that_tokens_come_from_must_be_allowed() {
    use mixer_adapter_config::proto::istio::policy::v1beta1::{
        Authentication, Mutual, OAuth, Tls,
        authentication::AuthType,
        tls::{AuthHeader, TokenSource, TokenType},
    };
    let with = |auth_type: AuthType| Connection {
        authentication: Some(Authentication { auth_type: Some(auth_type) }),
        ..connection("192.0.2.1:443")
    };
    let tls = |source: TokenSource| {
        with(AuthType::Tls(Tls {
            ca_certificates: "/etc/ca.pem".to_owned(),
            token_source: Some(source),
            token_type: Some(TokenType::AuthHeader(AuthHeader::Bearer as i32)),
            ..Tls::default()
        }))
    };
    let limited = access(Some("/etc/allowed".as_ref()), "192.0.2.1");
    assert_eq!(
        refused(&tls(TokenSource::TokenPath("/etc/shadow".to_owned())), &limited),
        ["connection.authentication.tls.ca_certificates", "connection.authentication.tls.token_path"]
    );
    let oauth = OAuth {
        client_id: "mixer".to_owned(),
        client_secret: "/etc/shadow".to_owned(),
        token_url: "http://127.0.0.1/token".to_owned(),
        ..OAuth::default()
    };
    assert_eq!(
        refused(&tls(TokenSource::Oauth(oauth)), &limited),
        [
            "connection.authentication.tls.ca_certificates",
            "connection.authentication.tls.oauth.client_secret",
            "connection.authentication.tls.oauth.token_url"
        ]
    );
    let mutual = Mutual {
        private_key: "/etc/key.pem".to_owned(),
        client_certificate: "/etc/allowed/cert.pem".to_owned(),
        ..Mutual::default()
    };
    assert_eq!(
        refused(&with(AuthType::Mutual(mutual)), &limited),
        ["connection.authentication.mutual.private_key"]
    );
}
