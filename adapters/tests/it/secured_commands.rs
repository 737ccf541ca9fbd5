//! Commands against a server that requires TLS and authenticated clients on both ports.

use std::{fs, path::Path};

use test_pki::{Authority, Files};

use crate::support::{Ran, Server, binary, run};

const NAME: &str = "policy.example.com";

/// A server over TLS that knows clients by certificate or token, and a source that requires certificates.
struct Secured {
    server: Server,
    files: Files,
}

impl Secured {
    fn start() -> Self {
        let (files, authority) = (Files::new(), Authority::new());
        let (own, client) = (authority.issue(&[NAME]), authority.issue(&["spiffe://mesh/operator"]));
        files.write("ca.pem", &authority.pem());
        files.write("tokens", "operator s3cret\n");
        for (name, certified) in [("server", &own), ("client", &client)] {
            files.write(&format!("{name}.pem"), &certified.certificate);
            files.write(&format!("{name}.key"), &certified.key);
        }
        let paths = ["server.pem", "server.key", "ca.pem", "tokens"].map(|name| path(&files, name));
        let [certificate, key, ca, tokens] = paths.each_ref().map(String::as_str);
        let server = Server::start(&[
            "--tls-cert-file",
            certificate,
            "--tls-key-file",
            key,
            "--tls-client-ca-file",
            ca,
            "--token-file",
            tokens,
            "--admin-token-file",
            tokens,
            "--admin-tls",
        ]);
        Self { server, files }
    }

    fn value(&self, flag: &str) -> String {
        match flag {
            "--tls-ca-file" => path(&self.files, "ca.pem"),
            "--tls-cert-file" => path(&self.files, "client.pem"),
            "--tls-key-file" => path(&self.files, "client.key"),
            "--tls-server-name" => NAME.to_owned(),
            "--token-file" => path(&self.files, "tokens"),
            other => panic!("no error names {other}"),
        }
    }

    /// Runs a command with the flags that its errors name, the first ones of `flags` in each, until it succeeds.
    fn run_as_told(&self, command: &[&str], flags: &[&[&str]]) -> (Ran, Vec<String>) {
        let mut given: Vec<String> = Vec::new();
        loop {
            let arguments: Vec<&str> =
                command.iter().copied().chain(given.iter().map(String::as_str)).collect();
            let ran = run(&arguments);
            if ran.code == 0 {
                return (ran, given);
            }
            let is_named = |flags: &&&[&str]| {
                flags.iter().all(|flag| ran.stderr.contains(flag) && !given.iter().any(|known| known == flag))
            };
            let told = flags.iter().find(is_named);
            let told = told.unwrap_or_else(|| panic!("{arguments:?}: no further flag is named: {ran:?}"));
            given.extend(told.iter().flat_map(|flag| [(*flag).to_owned(), self.value(flag)]));
        }
    }
}

fn path(files: &Files, name: &str) -> String {
    files.path(name).to_str().unwrap().to_owned()
}

const CA: &[&str] = &["--tls-ca-file"];
const SERVER_NAME: &[&str] = &["--tls-server-name"];
const CERTIFICATE: &[&str] = &["--tls-cert-file", "--tls-key-file"];
const TOKEN: &[&str] = &["--token-file"];

#[test]
fn every_command_works_by_the_flags_that_its_errors_name() {
    let secured = Secured::start();
    let (grpc, admin) = (secured.server.grpc.as_str(), secured.server.admin.as_str());
    let commands: [&[&str]; 5] = [
        &["check", "--address", grpc, "request.path=/x"],
        &["check", "--explain", "--address", grpc, "request.path=/x"],
        &["report", "--address", grpc, "response.code=200", "request.time=2019-05-06T07:08:09Z"],
        &["quota", "requests", "--address", grpc],
        &["call", "checknothing", "--adapter", "denier", "--address", grpc],
    ];
    for command in commands {
        for credentials in [CERTIFICATE, TOKEN] {
            let (_, flags) = secured.run_as_told(command, &[CA, SERVER_NAME, credentials]);
            let expected: Vec<&str> = [CA, SERVER_NAME, credentials].concat();
            let given: Vec<&str> =
                flags.iter().map(String::as_str).filter(|flag| flag.starts_with("--")).collect();
            assert_eq!(given, expected, "{command:?}");
        }
    }
    let (ran, flags) = secured.run_as_told(&["decisions", "--admin", admin], &[CA, SERVER_NAME, TOKEN]);
    assert_eq!(flags.len(), 6, "{flags:?}");
    assert!(ran.stderr.contains("recorded from now on"), "{ran:?}");
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let client = [CA, SERVER_NAME, TOKEN].concat();
    let client: Vec<String> =
        client.iter().flat_map(|flag| [(*flag).to_owned(), secured.value(flag)]).collect();
    let client: Vec<&str> = client.iter().map(String::as_str).collect();
    run(&[&["check", "--address", grpc, "request.path=/admin"], &client[..]].concat());
    let ran = run(&[&["decisions", "--json", "--verdict", "denied", "--admin", admin], &flags[..]].concat());
    let id = ran.json()["decision_id"].as_str().unwrap().to_owned();
    let ran = run(&[&["explain", &id, "--admin", admin], &flags[..]].concat());
    assert!(ran.code == 0 && ran.stdout.contains("check-path.rule.istio-system"), "{ran:?}");
}

#[test]
fn a_client_with_tls_is_told_that_a_server_has_none() {
    let server = Server::start(&[]);
    let secured = Files::new();
    secured.write("ca.pem", &Authority::new().pem());
    let ca = path(&secured, "ca.pem");
    for command in [
        &["check", "--address", &server.grpc, "--tls-ca-file", &ca][..],
        &["decisions", "--admin", &server.admin, "--tls-ca-file", &ca],
    ] {
        let ran = run(command);
        assert!(ran.code == 1 && ran.stderr.contains("the server does not speak TLS: leave out"), "{ran:?}");
    }
}

#[test]
fn a_token_is_not_sent_to_another_machine_without_tls() {
    let files = Files::new();
    files.write("token", "s3cret");
    let token = path(&files, "token");
    let ran = run(&["check", "--address", "192.0.2.1:9091", "--token-file", &token]);
    assert!(ran.code == 2 && ran.stderr.contains("over TLS only: add --tls-ca-file FILE"), "{ran:?}");
}

#[test]
fn watch_takes_the_same_names_of_flags() {
    let (files, authority, directory) = (Files::new(), Authority::new(), tempfile::tempdir().unwrap());
    fs::write(directory.path().join("a.yaml"), include_str!("../../config/sample.yaml")).unwrap();
    let identity = |name: &str| {
        let own = authority.issue(&[&format!("spiffe://mesh/{name}")]);
        [
            files.write(&format!("{name}.pem"), &own.certificate),
            files.write(&format!("{name}.key"), &own.key),
            files.write(&format!("{name}.ca"), &authority.pem()),
        ]
    };
    let [certificate, key, ca] = identity("source");
    let config: &Path = directory.path();
    let mut source = binary();
    source.args(["source", "--listen", "mcps://127.0.0.1:0", "--admin", "127.0.0.1:0", "--log", "error"]);
    source.args(["--mcp-allow", "spiffe://mesh/operator", "--config"]).arg(config);
    source.args(["--cert-file", &certificate, "--key-file", &key, "--ca-cert-file", &ca]);
    let (source, _) = Server::spawn(&mut source);
    let [certificate, key, ca] = identity("operator");
    let url = format!("mcps://{}", source.grpc);
    let ran = run(&[
        "watch",
        &url,
        "--once",
        "--timeout",
        "60s",
        "--tls-cert-file",
        &certificate,
        "--tls-key-file",
        &key,
        "--tls-ca-file",
        &ca,
        "--tls-server-name",
        "spiffe://mesh/source",
    ]);
    assert!(ran.code == 0 && ran.stdout.contains("closed-paths"), "{ran:?}");
}
