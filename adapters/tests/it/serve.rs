//! `serve` and its configuration.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use crate::support::{Server, binary, eventually, run};

/// Waits for an answer of the admin port.
fn until(server: &Server, path: &str, holds: impl Fn(&str) -> bool) -> String {
    eventually(path, || Some(server.get(path)).filter(|answer| holds(answer)))
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
    let config = server.get("/config");
    assert!(config.contains(r#""istio/policy/v1beta1/rules":3"#), "{config}");
    // The cache for Envoy is there by default.
    let caching =
        r#""check_cache":[{"namespace":"*","is_cached":false,"reason":"all handlers answer from memory, "#;
    assert!(config.contains(caching), "{config}");
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

    // A corrected configuration is applied; a faulty one after it leaves the good one in use.
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
fn logs_to_a_file_or_pipe_have_no_colours() {
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

#[test]
fn a_missing_directory_is_logged_once_and_awaited() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("config");
    let log = tempfile::NamedTempFile::new().unwrap();
    let mut serve = binary();
    serve.args(["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--log", "error", "--config"]);
    serve.arg(&directory).stderr(log.reopen().unwrap());
    let (server, _) = Server::spawn(&mut serve);
    until(&server, "/config", |status| status.contains(r#""rejected":1"#));
    assert!(server.get("/readyz").starts_with("HTTP/1.1 503"));
    let check = || run(&["check", "--address", &server.grpc]);
    assert!(check().stderr.contains("UNAVAILABLE: there is no configuration yet"), "{:?}", check());
    // Longer than the interval at which a directory that cannot be watched is read again.
    #[expect(clippy::disallowed_methods, reason = "nothing happens, so there is no event to wait for")]
    std::thread::sleep(Duration::from_millis(2500));
    let told = fs::read_to_string(log.path()).unwrap();
    assert_eq!(told.lines().count(), 2, "{told}");
    assert!(told.contains(&format!("{}: cannot be read: ", directory.display())), "{told}");
    assert!(told.contains("checks and reports are UNAVAILABLE until a valid one arrives"), "{told}");

    fs::create_dir(&directory).unwrap();
    write(&directory, &rule("closed"));
    until(&server, "/readyz", is_ready);
    assert!(check().stdout.starts_with("denied: "), "{:?}", check());
}

#[test]
fn a_change_of_the_configuration_changes_the_answers() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), &rule("closed"));
    let server = Server::start(&["--allow-empty", "--config", directory.path().to_str().unwrap()]);
    until(&server, "/readyz", is_ready);
    let check = || run(&["check", "--address", &server.grpc]).stdout;
    assert!(check().starts_with("denied: FAILED_PRECONDITION: "));
    fs::remove_file(directory.path().join("rules.yaml")).unwrap();
    until(&server, "/config", |status| status.contains(r#""applied":2"#));
    assert!(check().starts_with("allowed\n"));
}

#[test]
fn a_changed_field_is_on_the_status_with_its_line_and_both_values_where_requests_are_explained() {
    let directory = tempfile::tempdir().unwrap();
    let with = |message: &str| {
        let params = format!("params: {{status: {{code: 7, message: {message}}}}}}}\n---\nkind: rule");
        write(directory.path(), &rule("closed").replace("params: {}}\n---\nkind: rule", &params));
    };
    with("shut");
    let config = directory.path().to_str().unwrap();
    let server = Server::start(&["--config", config]);
    // A port that other machines reach.
    let silent = Server::start_on("0.0.0.0:0", &["--config", config]).0;
    until(&server, "/readyz", is_ready);
    until(&silent, "/readyz", is_ready);
    with("closed");
    let place = format!("params.status.message of closed.handler.istio-system ({config}/rules.yaml:7)");
    let field = format!(r#"{place}: \"shut\" -> \"closed\""#);
    until(&server, "/status", |status| status.contains(&field));
    until(&silent, "/status", |status| status.contains("changed closed.handler.istio-system"));
    for path in ["/status", "/config"] {
        assert!(!silent.get(path).contains("shut"), "{path}");
    }
}

#[test]
fn an_update_that_removes_everything_is_not_applied() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), &rule("closed"));
    let server = Server::start(&["--config", directory.path().to_str().unwrap()]);
    until(&server, "/readyz", is_ready);
    fs::remove_file(directory.path().join("rules.yaml")).unwrap();
    until(&server, "/config", |status| status.contains(r#""lost":1"#));
    assert!(run(&["check", "--address", &server.grpc]).stdout.starts_with("denied: FAILED_PRECONDITION: "));
}

#[test]
fn what_fails_is_answered_as_its_policy_says() {
    let directory = tempfile::tempdir().unwrap();
    let conditional =
        rule("closed").replace("spec:\n  actions", "spec:\n  match: source.name == \"x\"\n  actions");
    write(directory.path(), &conditional);
    let config = directory.path().to_str().unwrap();
    for (arguments, expected) in [
        (&[][..], "allowed\n"),
        (&["--on-match-error", "open"], "allowed\n"),
        (
            &["--on-match-error", "closed"],
            "denied: UNAVAILABLE: condition of close.rule.istio-system: attribute",
        ),
    ] {
        let server = Server::start(&[&["--config", config], arguments].concat());
        until(&server, "/readyz", is_ready);
        let ran = run(&["check", "--address", &server.grpc]);
        assert!(ran.stdout.starts_with(expected), "{arguments:?}: {ran:?}");
        assert!(server.get("/metrics").contains("\nmixer_adapter_condition_errors_total 1\n"));
    }
}

#[test]
fn what_becomes_of_requests_and_configuration_is_counted() {
    let server = Server::start(&[]);
    until(&server, "/readyz", is_ready);
    let ask = |arguments: &[&str]| run(&[arguments, &["--address", &server.grpc]].concat());
    ask(&["check", "-a", "request.path=/admin"]);
    ask(&["check", "-a", "request.path=/x"]);
    ask(&["quota", "requests", "--amount", "60"]);
    ask(&["quota", "requests", "--amount", "60", "--best-effort"]);
    ask(&["quota", "requests", "--amount", "60"]);
    ask(&["report", "-a", "response.code=0", "-a", "response.code=0"]);
    ask(&["report", "-a", "response.code=200"]);
    let page = server.get("/metrics");
    for series in [
        r#"mixer_adapter_checks_total{outcome="allowed"} 4"#,
        r#"mixer_adapter_checks_total{outcome="denied"} 1"#,
        r#"mixer_adapter_check_duration_seconds_bucket{le="+Inf"} 5"#,
        r#"mixer_adapter_quotas_total{outcome="granted"} 1"#,
        r#"mixer_adapter_quotas_total{outcome="partial"} 1"#,
        r#"mixer_adapter_quotas_total{outcome="refused"} 1"#,
        r#"mixer_adapter_reports_total{outcome="delivered"} 1"#,
        r#"mixer_adapter_reports_total{outcome="failed"} 1"#,
        "mixer_adapter_reported_requests_total 3",
        r#"mixer_adapter_config_updates_total{result="applied"} 1"#,
        "mixer_adapter_rules 3",
        "mixer_adapter_handlers 3",
        "mixer_adapter_config_is_stale 0",
    ] {
        assert!(page.lines().any(|line| line == series), "{series}: {page}");
    }
}

#[test]
fn the_line_to_try_is_a_command_that_works() {
    let (server, printed) = Server::start_and_print(&[]);
    until(&server, "/readyz", is_ready);
    let line = printed.lines().last().unwrap();
    let arguments: Vec<&str> = line.split('`').nth(1).unwrap().split(' ').skip(1).collect();
    let ran = run(&arguments);
    assert!(ran.code == 0 && ran.stdout.starts_with("denied: PERMISSION_DENIED: "), "{line}: {ran:?}");
}

#[test]
fn a_server_with_a_closed_standard_output_serves() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), &rule("closed"));
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    // A port that was free a moment ago, since this one is not printed.
    let admin = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let mut serve = binary();
    serve.args(["serve", "--listen", "127.0.0.1:0", "--admin", &admin, "--log", "error", "--config"]);
    let mut child = serve.arg(directory.path()).stdout(writer).spawn().unwrap();
    eventually("the server accepts connections", || {
        assert!(child.try_wait().unwrap().is_none(), "the server ended");
        std::net::TcpStream::connect(&admin).ok()
    });
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_unix_socket_is_used_by_commands_survives_a_crash_and_is_removed_at_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("grpc.sock");
    let address = format!("unix:{}", path.display());
    let serve = || {
        let arguments = ["serve", "--listen", &address, "--admin", "127.0.0.1:0", "--log", "error"];
        Server::spawn(binary().args(arguments))
    };
    let (mut crashed, printed) = serve();
    assert_eq!(crashed.grpc, address);
    assert!(
        printed.contains(&format!("check --attributes request.url_path=/admin --address {address}")),
        "{printed}"
    );
    let check = run(&["check", "--address", &address, "--attributes", "request.path=/admin"]);
    assert!(check.stdout.contains("PERMISSION_DENIED"), "{check:?}");
    let call = crashed.call(&["checknothing", "--adapter", "denier"]);
    assert!(call.stdout.contains("FAILED_PRECONDITION"), "{call:?}");

    let second = run(&["serve", "--listen", &address, "--admin", "127.0.0.1:0"]);
    assert_eq!(second.code, 1);
    let text = format!("cannot listen on {address}: another process listens on it");
    assert!(second.stderr.contains(&text), "{second:?}");

    crashed.child.kill().unwrap();
    crashed.child.wait().unwrap();
    assert!(path.exists());
    let (mut server, _) = serve();
    server.signal("TERM");
    assert!(server.child.wait().unwrap().success());
    assert!(!path.exists());
}

#[test]
fn sighup_reads_the_configuration_again_even_if_no_change_of_it_was_noticed() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), &rule("closed"));
    let server = Server::start(&["--config", directory.path().to_str().unwrap()]);
    until(&server, "/config", |status| status.contains(r#""applied":1"#));
    server.signal("HUP");
    until(&server, "/config", |status| status.contains(r#""applied":2"#));
}

/// `serve` of a shell that set limits before.
fn limited(ulimit: &str) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{ulimit} && exec \"$0\" \"$@\"")]).arg(binary().get_program());
    shell.args(["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--log", "warn"]);
    shell.stderr(Stdio::piped());
    shell
}

#[test]
fn the_limit_of_open_files_is_raised_as_far_as_the_system_lets_it_be() {
    let (server, _) = Server::spawn(&mut limited("ulimit -S -n 128"));
    let metrics = server.get("/metrics");
    let limit = metrics.lines().find_map(|line| line.strip_prefix("process_max_fds ")).unwrap();
    assert!(limit.parse::<f64>().unwrap() > 128.0, "{limit}");
}

#[test]
fn few_open_files_leave_room_for_probes_and_new_clients() {
    let (mut server, _) = Server::spawn(&mut limited("ulimit -n 128"));
    // The preface of HTTP/2 and settings, and no call.
    let greeting = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    let mut greeted = Vec::new();
    for _ in 0..160 {
        let mut stream = TcpStream::connect(&server.grpc).unwrap();
        stream.write_all(greeting).unwrap();
        greeted.push(stream);
    }
    assert!(is_ready(&server.get("/readyz")));
    let check = run(&["check", "--address", &server.grpc, "--attributes", "request.path=/"]);
    assert_eq!(check.code, 0, "{check:?}");
    server.signal("TERM");
    let mut log = String::new();
    server.child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
    assert!(log.contains("the limit of open files allows fewer connections"), "{log}");
    assert!(!log.contains("accepting a connection failed"), "{log}");
}
