//! `serve` and its configuration.
#![allow(clippy::unwrap_used)]

mod support;

use std::{
    fs,
    io::Read as _,
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};

use support::{Server, binary, run};

/// Waits until the admin port answers so, at most as long as a newcomer would.
fn until(server: &Server, path: &str, holds: impl Fn(&str) -> bool) -> String {
    let start = Instant::now();
    loop {
        let answer = server.get(path);
        if holds(&answer) {
            return answer;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "{path} still answers {answer}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn is_ready(answer: &str) -> bool {
    answer.starts_with("HTTP/1.1 200") && answer.ends_with("ready\n")
}

/// A rule that every request matches, of this handler.
fn rule(handler: &str) -> String {
    format!(
        "kind: instance\nmetadata: {{name: all}}\nspec: {{compiledTemplate: checknothing, params: {{}}}}\n\
         ---\nkind: handler\nmetadata: {{name: closed}}\nspec: {{compiledAdapter: denier, params: {{}}}}\n\
         ---\nkind: rule\nmetadata: {{name: close}}\nspec:\n  actions:\n  - handler: {handler}\n    instances: [all]\n"
    )
}

fn write(directory: &Path, text: &str) {
    fs::write(directory.join("rules.yaml"), text).unwrap();
}

#[test]
fn without_a_configuration_the_sample_is_in_use_and_the_server_ready() {
    let server = Server::start(&[]);
    until(&server, "/readyz", is_ready);
    assert!(server.get("/config").contains(r#""istio/policy/v1beta1/rules":3"#), "{}", server.get("/config"));
}

#[test]
fn a_faulty_configuration_is_refused_as_a_whole_unless_lenient() {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().to_str().unwrap();
    write(directory.path(), &rule("clozed"));
    let strict = Server::start(&["--config", config]);
    let status = until(&strict, "/config", |status| status.contains(r#""rejected":1"#));
    assert!(status.contains("rules.yaml:13: close.rule.istio-system: spec.actions[0].handler: "), "{status}");
    assert!(strict.get("/readyz").starts_with("HTTP/1.1 503"));

    let lenient = Server::start(&["--lenient", "--config", config]);
    until(&lenient, "/readyz", is_ready);
    assert!(lenient.get("/config").contains("close.rule.istio-system: spec.actions[0].handler: "));

    // What is put right is noticed, and what is broken later leaves the good one in use.
    write(directory.path(), &rule("closed"));
    until(&strict, "/readyz", is_ready);
    write(directory.path(), &rule("clozed"));
    let status = until(&strict, "/config", |status| !status.contains(r#""refusal":[]"#));
    assert!(status.contains(r#""applied":1"#), "{status}");
    assert!(is_ready(&strict.get("/readyz")));
}

#[test]
fn a_port_that_is_taken_is_named_once_with_the_reason() {
    let taken = Server::start(&[]);
    let ran = run(&["serve", "--listen", &taken.grpc, "--admin", "127.0.0.1:0", "--log", "error"]);
    assert_eq!(ran.code, 1);
    let reason = format!("error: cannot listen on {}: ", taken.grpc);
    assert!(ran.stderr.starts_with(&reason) && ran.stderr.matches("in use").count() == 1, "{ran:?}");
}

#[test]
fn what_is_logged_to_a_file_or_pipe_has_no_colours() {
    for (json, expected) in [("false", " INFO "), ("1", r#""level":"INFO""#)] {
        let arguments = ["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
        let mut serve = binary();
        serve.args(arguments).env("MIXER_ADAPTER_LOG_JSON", json).env_remove("NO_COLOR");
        let mut child = serve.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut log = [0; 512];
        let length = child.stderr.as_mut().unwrap().read(&mut log).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        let log = String::from_utf8_lossy(&log[..length]);
        assert!(log.contains(expected) && !log.contains('\u{1b}'), "{log:?}");
    }
}
