//! The checklist of creds (docs/behaviour/mcp.md#istios-test-cases): certificates, keys and authorities that are missing, bad, or
//! change.

use std::{
    fs,
    net::SocketAddr,
    os::unix::fs::symlink,
    path::Path,
    sync::Arc,
    time::{Duration, SystemTime},
};

use parking_lot::Mutex;
use tokio::{
    net::{TcpListener, TcpStream},
    time::{sleep, timeout},
};

use crate::{
    Stream,
    tls::{
        AccessSettings, Client, ClientOptions, Credentials, KeyPair, Server, TlsError, certificate_ends,
        handshake_threads::{WITH_CLIENTS, WITH_SERVERS},
    },
};
use test_pki::{Authority, Certified, Files};

const SERVER: &str = "spiffe://cluster.local/ns/istio-system/sa/galley";
const CLIENT: &str = "spiffe://cluster.local/ns/istio-system/sa/mixer";

/// Puts credentials into a folder.
fn put(folder: &Path, certified: &Certified, authority: &Authority) -> Credentials {
    fs::create_dir_all(folder).unwrap();
    for (name, content) in
        [("cert.pem", &certified.certificate), ("key.pem", &certified.key), ("ca.pem", &authority.pem())]
    {
        fs::write(folder.join(name), content).unwrap();
    }
    credentials(folder)
}

fn credentials(folder: &Path) -> Credentials {
    Credentials {
        certificate: folder.join("cert.pem"),
        key: folder.join("key.pem"),
        authorities: folder.join("ca.pem"),
    }
}

/// Handshakes with every client, until the test ends.
async fn serve(credentials: Credentials) -> SocketAddr {
    let server = Server::new(credentials, AccessSettings::default()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let server = server.clone();
            tokio::spawn(async move {
                if let Ok((mut stream, Some(identity))) =
                    server.accept(Stream::Left(stream), Duration::from_secs(10)).await
                {
                    let names = identity.names().join(" ");
                    let _ = tokio::io::AsyncWriteExt::write_all(&mut stream, names.as_bytes()).await;
                    let _ = tokio::io::AsyncWriteExt::shutdown(&mut stream).await;
                }
            });
        }
    });
    address
}

fn client(credentials: Credentials, servers: &[&str]) -> Arc<Client> {
    let servers = servers.iter().map(|name| (*name).to_owned()).collect();
    Client::new(ClientOptions::mutual(credentials, servers)).unwrap()
}

/// The identity of the client as the server sees it, and the certificate of the server.
async fn meet(client: &Client, address: SocketAddr, name: &str) -> Result<(String, Vec<u8>), String> {
    let stream = TcpStream::connect(address).await.unwrap();
    let stream = timeout(Duration::from_secs(10), client.connect(name, stream, &["h2"])).await.unwrap();
    let mut stream = stream.map_err(|error: TlsError| error.to_string())?;
    let shown = stream.get_ref().1.peer_certificates().unwrap()[0].to_vec();
    let mut names = String::new();
    // With TLS 1.3 a client learns only here that its certificate is refused.
    let read = tokio::io::AsyncReadExt::read_to_string(&mut stream, &mut names).await;
    read.map_err(|error| error.to_string())?;
    Ok((names, shown))
}

async fn until(
    client: &Client,
    address: SocketAddr,
    holds: impl Fn(&Result<(String, Vec<u8>), String>) -> bool,
) {
    for _ in 0..100 {
        let met = meet(client, address, "127.0.0.1").await;
        if holds(&met) {
            return;
        }
        sleep(Duration::from_millis(50)).await;
    }
    panic!("the changed files are not used");
}

#[tokio::test]
async fn both_ends_are_authenticated_and_the_server_by_its_name_or_its_san() {
    let (authority, files) = (Authority::new(), Files::new());
    let server =
        put(&files.path("server"), &authority.issue(&[SERVER, "127.0.0.1", "galley.example"]), &authority);
    let own = put(&files.path("client"), &authority.issue(&[CLIENT]), &authority);
    let address = serve(server).await;
    let by_name = client(own.clone(), &[]);
    assert_eq!(meet(&by_name, address, "127.0.0.1").await.unwrap().0, CLIENT);
    assert_eq!(meet(&by_name, address, "galley.example").await.unwrap().0, CLIENT);
    let error = meet(&by_name, address, "other.example").await.unwrap_err();
    assert!(error.starts_with("TLS handshake with other.example: "), "{error}");
    let by_san = client(own.clone(), &["spiffe://x/y", SERVER]);
    assert_eq!(meet(&by_san, address, "other.example").await.unwrap().0, CLIENT);
    let error = meet(&client(own, &["spiffe://x/y"]), address, "127.0.0.1").await.unwrap_err();
    assert!(error.contains("the certificate has the SANs") && error.contains(SERVER), "{error}");
}

#[tokio::test]
async fn a_certificate_of_another_authority_is_refused_by_either_end() {
    let (authority, stranger, files) = (Authority::new(), Authority::new(), Files::new());
    let address = serve(put(&files.path("server"), &authority.issue(&["127.0.0.1"]), &authority)).await;
    let unknown = client(put(&files.path("unknown"), &stranger.issue(&[CLIENT]), &authority), &[]);
    assert!(meet(&unknown, address, "127.0.0.1").await.is_err());
    let trusts_another = client(put(&files.path("other"), &authority.issue(&[CLIENT]), &stranger), &[]);
    let error = meet(&trusts_another, address, "127.0.0.1").await.unwrap_err();
    assert!(error.contains("UnknownIssuer"), "{error}");
}

#[tokio::test]
async fn a_chain_of_more_than_8_certificates_is_refused_by_either_end() {
    let (authority, files) = (Authority::new(), Files::new());
    let certified = |san: &str, more: usize| {
        let certified = authority.issue(&[san]);
        let certificate = certified.certificate.clone() + &authority.pem().repeat(more);
        Certified { certificate, ..certified }
    };
    let address = serve(put(&files.path("server"), &certified("127.0.0.1", 7), &authority)).await;
    let longest = client(put(&files.path("longest"), &certified(CLIENT, 7), &authority), &[]);
    assert_eq!(meet(&longest, address, "127.0.0.1").await.unwrap().0, CLIENT);
    let longer = client(put(&files.path("longer"), &certified(CLIENT, 8), &authority), &[]);
    assert!(meet(&longer, address, "127.0.0.1").await.is_err());
    let address = serve(put(&files.path("server-longer"), &certified("127.0.0.1", 8), &authority)).await;
    for servers in [&[][..], &["127.0.0.1"]] {
        let own = client(put(&files.path("own"), &certified(CLIENT, 0), &authority), servers);
        let error = meet(&own, address, "127.0.0.1").await.unwrap_err();
        assert!(error.contains("the peer shows 9 certificates"), "{error}");
    }
}

#[tokio::test]
async fn authorities_of_strangers_that_sign_each_other_are_refused_by_either_end() {
    let (authority, files) = (Authority::new(), Files::new());
    let address = serve(put(&files.path("server"), &authority.issue(&["127.0.0.1"]), &authority)).await;
    for (number, expected) in [
        (2, "BadSignature"),
        (3, "the peer shows 3 certificates of authorities with 1 names"),
        (30, "the peer shows 31 certificates of"),
    ] {
        let stranger = authority.imitated(&[CLIENT, "127.0.0.1"], number);
        let shows = client(put(&files.path("stranger"), &stranger, &authority), &[]);
        assert!(meet(&shows, address, "127.0.0.1").await.is_err());
        let address = serve(put(&files.path("strange-server"), &stranger, &authority)).await;
        let own = client(put(&files.path("own"), &authority.issue(&[CLIENT]), &authority), &[]);
        let error = meet(&own, address, "127.0.0.1").await.unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}

/// The server of a current-thread runtime would not get to its own work while it verifies what a client shows.
#[tokio::test]
async fn handshakes_run_on_threads_of_their_own() {
    let thread = || std::thread::current().name().map(str::to_owned);
    for handshakes in [&WITH_CLIENTS, &WITH_SERVERS] {
        let ran_on = handshakes.run(async move { Ok(thread()) }).await.unwrap();
        assert!(ran_on.is_some_and(|name| name.starts_with("tls-")));
    }
}

#[tokio::test]
async fn files_that_are_not_there_yet_are_waited_for_and_then_used() {
    let (authority, files) = (Authority::new(), Files::new());
    let server = authority.issue(&["127.0.0.1"]);
    let folder = files.path("server");
    let address = serve(credentials(&folder)).await;
    let client = client(credentials(&files.path("client")), &[]);
    let meeting = tokio::spawn(async move { meet(&client, address, "127.0.0.1").await });
    sleep(Duration::from_millis(100)).await;
    assert!(!meeting.is_finished());
    put(&folder, &server, &authority);
    let own = authority.issue(&[CLIENT]);
    put(&files.path("client"), &own, &authority);
    assert_eq!(meeting.await.unwrap().unwrap().0, CLIENT);
}

#[tokio::test]
async fn a_certificate_that_is_renewed_is_shown_and_a_bad_or_missing_pair_keeps_the_former() {
    let (authority, files) = (Authority::new(), Files::new());
    let (first, second) = (authority.issue(&["127.0.0.1"]), authority.issue(&["127.0.0.1"]));
    let folder = files.path("server");
    let address = serve(put(&folder, &first, &authority)).await;
    let client = client(put(&files.path("client"), &authority.issue(&[CLIENT]), &authority), &[]);
    let shown = meet(&client, address, "127.0.0.1").await.unwrap().1;
    for broken in [
        // Does not go with the certificate, no PEM at all, missing.
        &|| fs::write(folder.join("key.pem"), &second.key).unwrap(),
        &|| fs::write(folder.join("cert.pem"), "bogus").unwrap(),
        &|| fs::remove_file(folder.join("cert.pem")).unwrap(),
        &|| fs::write(folder.join("ca.pem"), "bogus").unwrap(),
        &|| fs::remove_file(folder.join("ca.pem")).unwrap() as (),
    ] as [&dyn Fn(); 5]
    {
        broken();
        sleep(Duration::from_millis(600)).await;
        assert_eq!(meet(&client, address, "127.0.0.1").await.unwrap().1, shown);
    }
    put(&folder, &second, &authority);
    until(&client, address, |met| met.as_ref().is_ok_and(|(_, now)| *now != shown)).await;
}

#[tokio::test]
async fn authorities_that_change_are_trusted_and_the_former_no_more() {
    let (old, new, files) = (Authority::new(), Authority::new(), Files::new());
    let folder = files.path("server");
    let address = serve(put(&folder, &old.issue(&["127.0.0.1"]), &old)).await;
    let of_old = client(put(&files.path("old"), &old.issue(&[CLIENT]), &old), &[]);
    let of_new = client(put(&files.path("new"), &new.issue(&[CLIENT]), &old), &[]);
    meet(&of_old, address, "127.0.0.1").await.unwrap();
    meet(&of_new, address, "127.0.0.1").await.unwrap_err();
    fs::write(folder.join("ca.pem"), new.pem()).unwrap();
    until(&of_new, address, Result::is_ok).await;
    meet(&of_old, address, "127.0.0.1").await.unwrap_err();
}

#[tokio::test]
async fn each_connection_reads_the_files_with_the_reader_of_the_client() {
    let (authority, other, files) = (Authority::new(), Authority::new(), Files::new());
    let address = serve(put(&files.path("server"), &authority.issue(&["127.0.0.1"]), &authority)).await;
    // Without the reader the client would trust the other authority.
    let own = put(&files.path("client"), &authority.issue(&[CLIENT]), &other);
    let (trusted, file) = (Arc::new(Mutex::new(authority.pem())), own.authorities.clone());
    let current = trusted.clone();
    let read = move |path: &Path| {
        if path == file { Ok(current.lock().clone().into_bytes()) } else { fs::read(path) }
    };
    let client = Client::load_with(ClientOptions::mutual(own, Vec::new()), Box::new(read)).unwrap();
    meet(&client, address, "127.0.0.1").await.unwrap();
    *trusted.lock() = other.pem();
    let error = meet(&client, address, "127.0.0.1").await.unwrap_err();
    assert!(error.contains("UnknownIssuer"), "{error}");
}

#[tokio::test]
async fn secrets_that_are_mounted_change_by_one_symlink() {
    let (authority, files) = (Authority::new(), Files::new());
    let folder = files.path("mounted");
    put(&folder.join("..1"), &authority.issue(&["127.0.0.1"]), &authority);
    put(&folder.join("..2"), &authority.issue(&["127.0.0.1"]), &authority);
    symlink("..1", folder.join("..data")).unwrap();
    for name in ["cert.pem", "key.pem", "ca.pem"] {
        symlink(Path::new("..data").join(name), folder.join(name)).unwrap();
    }
    let address = serve(credentials(&folder)).await;
    let client = client(put(&files.path("client"), &authority.issue(&[CLIENT]), &authority), &[]);
    let shown = meet(&client, address, "127.0.0.1").await.unwrap().1;
    symlink("..2", folder.join("..new")).unwrap();
    fs::rename(folder.join("..new"), folder.join("..data")).unwrap();
    until(&client, address, |met| met.as_ref().is_ok_and(|(_, now)| *now != shown)).await;
}

#[test]
fn certificates_that_are_not_valid_now_are_refused_with_the_date_and_others_are_listed_with_their_end() {
    let (authority, files) = (Authority::new(), Files::new());
    let load = |name: &str, certified: &Certified| {
        let Credentials { certificate, key, authorities } = put(&files.path(name), certified, &authority);
        let identity = Some(KeyPair { certificate: certificate.clone(), key });
        let options = ClientOptions { authorities: Some(authorities), identity, ..ClientOptions::default() };
        (Client::load(options), certificate)
    };
    for (start, end, reason) in [
        (2020, 2021, "has expired: it was valid until 2021-01-01T00:00:00Z"),
        (4000, 4001, "is not valid before 4000-01-01T00:00:00Z"),
    ] {
        let (client, file) = load("refused", &authority.issue_for_years(&[CLIENT], start, end));
        assert_eq!(client.unwrap_err().to_string(), format!("{} {reason}", file.display()));
        assert!(!certificate_ends().contains_key(&file));
    }
    let (client, file) = load("used", &authority.issue_for_years(&[CLIENT], 2020, 3000));
    let end = certificate_ends()[&file].duration_since(SystemTime::UNIX_EPOCH).unwrap();
    // `date -ud 3000-01-01 +%s`
    assert_eq!((end.as_secs(), client.is_ok()), (32_503_680_000, true));
    assert!(certificate_ends().contains_key(&files.path("used").join("ca.pem")));
    drop(client);
    assert!(!certificate_ends().contains_key(&file));
}

#[test]
fn the_files_are_by_default_where_istio_puts_them() {
    let Credentials { certificate, key, authorities } = Credentials::default();
    assert_eq!(certificate, Path::new("/etc/certs/cert-chain.pem"));
    assert_eq!(key, Path::new("/etc/certs/key.pem"));
    assert_eq!(authorities, Path::new("/etc/certs/root-cert.pem"));
}
