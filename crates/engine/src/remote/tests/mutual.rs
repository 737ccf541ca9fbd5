//! Mutual TLS: both sides show a certificate, and the adapter's is taken for its URI SAN.

use std::net::SocketAddr;

use tokio::runtime::Handle;
use tokio_rustls::rustls::pki_types::{CertificateDer, pem::PemObject as _};
use tonic::Code;

use super::{
    check, connection,
    pki::{Authority, Certified, Files, secured, secured_on},
    port, quick, request,
    scripted::Act,
    soon, until,
};
use crate::remote::{Options, RemoteAdapter};
use mixer_adapter_config::proto::istio::policy::v1beta1::{
    Authentication, Connection, Mutual, authentication::AuthType,
};

const MIXER: &str = "spiffe://cluster.local/ns/istio-system/sa/istio-mixer-service-account";
const ADAPTER: &str = "spiffe://cluster.local/ns/adapters/sa/denier";

fn mutual(files: &Files, authority: &Authority, own: &Certified) -> Mutual {
    Mutual {
        private_key: files.write("key.pem", &own.key),
        client_certificate: files.write("cert.pem", &own.certificate),
        ca_certificates: files.write("ca.pem", &authority.pem()),
        server_name: "adapter.example".to_owned(),
    }
}

fn over(address: impl ToString, mutual: Mutual) -> Connection {
    let authentication = Some(Authentication { auth_type: Some(AuthType::Mutual(mutual)) });
    Connection { authentication, ..connection(address) }
}

fn remote(address: SocketAddr, mutual: Mutual) -> RemoteAdapter {
    RemoteAdapter::new(&over(address, mutual), &quick(), &Handle::current()).unwrap()
}

async fn ask(remote: &RemoteAdapter) -> Result<bytes::Bytes, tonic::Status> {
    soon(remote.call(&check(), request(None), None)).await
}

fn der(certified: &Certified) -> Vec<u8> {
    CertificateDer::from_pem_slice(certified.certificate.as_bytes()).unwrap().to_vec()
}

#[tokio::test]
async fn an_adapter_with_the_clients_own_san_is_called_whatever_its_dns_name() {
    let (authority, files) = (Authority::new(), Files::new());
    let own = authority.issue(&[MIXER]);
    let theirs = authority.issue(&["other.example", "spiffe://cluster.local/ns/x/sa/y", MIXER]);
    let mut to = secured(&theirs, Some(&authority), |_| Act::ok(b"")).await;
    ask(&remote(to.server.address, mutual(&files, &authority, &own))).await.unwrap();
    assert_eq!(*to.shown.lock().unwrap(), [(Some("adapter.example".to_owned()), Some(der(&own)))]);
    assert_eq!(to.server.next().await.head.uri().authority().unwrap().as_str(), "adapter.example");
}

#[tokio::test]
async fn an_adapter_with_another_san_or_from_another_authority_is_unavailable() {
    let (authority, stranger, files) = (Authority::new(), Authority::new(), Files::new());
    let own = authority.issue(&[MIXER]);
    for (theirs, text) in [
        (authority.issue(&["adapter.example", ADAPTER]), "none of"),
        (authority.issue(&["adapter.example", &format!("{MIXER}/x")]), "none of"),
        (authority.issue(&["adapter.example"]), "none of"),
        (stranger.issue(&["adapter.example", MIXER]), "UnknownIssuer"),
    ] {
        let mut to = secured(&theirs, Some(&authority), |_| Act::ok(b"")).await;
        let error = ask(&remote(to.server.address, mutual(&files, &authority, &own))).await.unwrap_err();
        assert_eq!(error.code(), Code::Unavailable);
        assert!(error.message().contains(text), "{error:?}");
        assert!(to.server.rest().is_empty());
    }
}

#[tokio::test]
async fn the_sans_of_adapters_can_be_named() {
    let (authority, files) = (Authority::new(), Files::new());
    let own = authority.issue(&["mixer.example"]);
    let options = Options { adapter_sans: vec![ADAPTER.to_owned()], ..quick() };
    for (san, taken) in [(ADAPTER, true), (MIXER, false)] {
        let to = secured(&authority.issue(&[san]), Some(&authority), |_| Act::ok(b"")).await;
        let connection = over(to.server.address, mutual(&files, &authority, &own));
        let remote = RemoteAdapter::new(&connection, &options, &Handle::current()).unwrap();
        assert_eq!(ask(&remote).await.is_ok(), taken, "{san}");
    }
}

#[tokio::test]
async fn a_client_that_the_adapter_does_not_know_is_unavailable() {
    let (authority, stranger, files) = (Authority::new(), Authority::new(), Files::new());
    let to = secured(&authority.issue(&[MIXER]), Some(&authority), |_| Act::ok(b"")).await;
    let remote = remote(to.server.address, mutual(&files, &authority, &stranger.issue(&[MIXER])));
    assert_eq!(ask(&remote).await.unwrap_err().code(), Code::Unavailable);
}

#[tokio::test]
async fn a_changed_certificate_and_key_are_used_for_the_next_connection() {
    let (authority, files) = (Authority::new(), Files::new());
    let (first, second) = (authority.issue(&[MIXER]), authority.issue(&[MIXER]));
    let theirs = authority.issue(&[MIXER]);
    let port = port();
    let to = secured_on(&port, &theirs, Some(&authority), |_| Act::ok(b"")).await;
    let remote = remote(port.address, mutual(&files, &authority, &first));
    ask(&remote).await.unwrap();
    // The key alone does not match the certificate yet: the former pair stays in use.
    files.write("key.pem", &second.key);
    drop(to);
    let to = secured_on(&port, &theirs, Some(&authority), |_| Act::ok(b"")).await;
    until(async || ask(&remote).await.is_ok()).await;
    assert_eq!(to.shown.lock().unwrap()[0].1, Some(der(&first)));
    files.write("cert.pem", &second.certificate);
    drop(to);
    let to = secured_on(&port, &theirs, Some(&authority), |_| Act::ok(b"")).await;
    until(async || ask(&remote).await.is_ok()).await;
    assert_eq!(to.shown.lock().unwrap()[0].1, Some(der(&second)));
}

#[tokio::test]
async fn faults_of_the_clients_files_name_their_fields() {
    let (authority, files) = (Authority::new(), Files::new());
    let own = authority.issue(&[MIXER]);
    let good = mutual(&files, &authority, &own);
    let other_key = files.write("other.pem", &authority.issue(&[MIXER]).key);
    let text = files.write("text", "hello");
    let nameless = files.write("nameless.pem", &authority.issue(&["mixer.example"]).certificate);
    let certificate = files.write("again.pem", &own.certificate);
    for (bad, expected) in [
        (Mutual { private_key: text.clone(), ..good.clone() }, "private_key: holds no private key"),
        (Mutual { private_key: other_key, ..good.clone() }, "private_key: does not belong to"),
        (Mutual { private_key: certificate, ..good.clone() }, "private_key: holds no private key"),
        (Mutual { client_certificate: text, ..good.clone() }, "client_certificate: holds no certificate"),
        (Mutual { client_certificate: nameless, ..good.clone() }, "client_certificate: has no URI SAN"),
        (Mutual { ca_certificates: "/nowhere".to_owned(), ..good }, "ca_certificates: cannot be read"),
    ] {
        let connection = over("adapter:9091", bad);
        let error = RemoteAdapter::new(&connection, &quick(), &Handle::current()).unwrap_err().to_string();
        let (field, reason) = expected.split_once(": ").unwrap();
        assert!(error.starts_with(&format!("connection.authentication.mutual.{field}: /")), "{error:?}");
        assert!(error.contains(reason), "{error:?}");
    }
}
