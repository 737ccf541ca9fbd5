//! Sources over TLS.

use std::fs;

use test_pki::{Authority, Files};

use super::{
    RULES, config,
    support::{Server, binary, run},
    until_ready,
};

/// The flags with certificate, key and authority of a peer.
fn identity(files: &Files, authority: &Authority, name: &str) -> Vec<String> {
    let own = authority.issue(&[&format!("spiffe://mesh/{name}")]);
    let written = [
        ("--cert-file", files.write(&format!("{name}.cert"), &own.certificate)),
        ("--key-file", files.write(&format!("{name}.key"), &own.key)),
        ("--ca-cert-file", files.write(&format!("{name}.ca"), &authority.pem())),
    ];
    written.into_iter().flat_map(|(flag, path)| [flag.to_owned(), path]).collect()
}

/// A source of the sample over TLS that only serves `spiffe://mesh/mixer`, with the certificates of several peers.
struct Secured {
    source: Server,
    authority: Authority,
    certificates: Files,
    _configuration: tempfile::TempDir,
}

impl Secured {
    fn start() -> Self {
        let configuration = tempfile::tempdir().unwrap();
        fs::write(configuration.path().join("a.yaml"), include_str!("../../../config/sample.yaml")).unwrap();
        let (certificates, authority) = (Files::new(), Authority::new());
        let source = Server::spawn(
            binary()
                .args([
                    "source",
                    "--listen",
                    "mcps://127.0.0.1:0",
                    "--admin",
                    "127.0.0.1:0",
                    "--log",
                    "error",
                ])
                .args(["--mcp-allow", "spiffe://mesh/mixer", "--config"])
                .arg(configuration.path())
                .args(identity(&certificates, &authority, "source")),
        )
        .0;
        Self { source, authority, certificates, _configuration: configuration }
    }

    /// The flags of a client of it.
    fn flags(&self, name: &str) -> Vec<String> {
        let mut flags = identity(&self.certificates, &self.authority, name);
        flags.extend(["--mcp-server-san", "spiffe://mesh/source"].map(str::to_owned));
        flags
    }

    fn sink(&self, scheme: &str, name: &str) -> Server {
        let mut arguments = self.flags(name);
        arguments.extend(["--config".to_owned(), format!("{scheme}://{}", self.source.grpc)]);
        Server::start(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
    }
}

#[test]
fn over_tls_only_those_on_the_list_are_served() {
    let secured = Secured::start();
    let (listed, stranger) = (secured.sink("mcps", "mixer"), secured.sink("mcps", "stranger"));
    let status =
        config(&secured.source, |json| json["sinks"][0]["collections"][RULES]["accepted"].is_string());
    assert_eq!(status["sinks"].as_array().unwrap().len(), 1, "{status:#}");
    until_ready(&listed);
    assert!(stranger.get("/readyz").starts_with("HTTP/1.1 503"));
}

#[test]
fn every_form_is_served_over_tls_to_the_same_list() {
    let secured = Secured::start();
    let sinks = ["xdss", "xdss+delta", "mcps+aggregated"];
    sinks.map(|scheme| secured.sink(scheme, "mixer")).iter().for_each(until_ready);
    let watch = |scheme: &str, name: &str| {
        let url = format!("{scheme}://{}", secured.source.grpc);
        let mut arguments = vec!["watch", &url, "--once", "--timeout", "5s"];
        let flags = secured.flags(name);
        arguments.extend(flags.iter().map(String::as_str));
        run(&arguments)
    };
    let seen = watch("xdss", "mixer");
    assert!(seen.code == 0 && seen.stdout.contains("istio-system/closed-paths"), "{seen:?}");
    let refused = watch("xdss+delta", "stranger");
    assert!(refused.code == 1 && refused.stdout.is_empty(), "{refused:?}");
}
