//! The decision log, and the log of a server at the level debug.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use crate::support::{Server, binary, eventually, mixer::call, run};
use mixer_adapter_engine::proto::istio::mixer::v1::{
    CheckRequest, CheckResponse, ReportRequest, ReportResponse, check_request::QuotaParams,
};
use serde_json::Value as Json;
use tonic::{Response, metadata::MetadataMap};

/// The lines of a file, once there are as many.
fn lines(file: &Path, count: usize) -> Vec<Json> {
    eventually("decisions are logged", || {
        let text = fs::read_to_string(file).ok()?;
        let lines: Vec<Json> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        (lines.len() >= count).then_some(lines)
    })
}

fn start(log: &Path, flags: &[&str]) -> Server {
    let server = Server::start(&[&["--decision-log", log.to_str().unwrap()], flags].concat());
    server.until("/readyz", "\nready\n");
    server
}

fn field<'j>(line: &'j Json, name: &str) -> &'j str {
    line[name].as_str().unwrap_or_default()
}

#[test]
fn checks_quotas_and_failed_reports_are_lines() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("decisions");
    let server = start(&log, &[]);
    let ask = |arguments: &[&str]| run(&[arguments, &["--address", &server.grpc]].concat());
    ask(&[
        "check",
        "-a",
        "request.path=/admin",
        "-a",
        "request.headers=cookie=secret",
        "-a",
        "request.referer=/?token=secret",
    ]);
    let params = QuotaParams { amount: 60, best_effort: false };
    check(
        &server,
        CheckRequest { quotas: [("requests".to_owned(), params)].into(), ..CheckRequest::default() },
    );
    ask(&["report", "-a", "response.code=200"]);
    ask(&["report", "-a", "response.code=0", "-a", "response.code=0"]);
    let lines = lines(&log, 4);
    let kinds: Vec<(&str, &str)> =
        lines.iter().map(|line| (field(line, "kind"), field(line, "verdict"))).collect();
    // The sample needs the time of a request that has a status; delivered reports have no line.
    assert_eq!(
        kinds,
        [("check", "denied"), ("check", "allowed"), ("quota", "granted"), ("report", "failed")]
    );
    let [denied, allowed, quota, report] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!(denied["rules"], serde_json::json!(["check-path.rule.istio-system"]));
    assert_eq!(denied["attributes"]["request.path"], "/admin");
    assert_eq!(denied["attributes"]["request.headers"]["cookie"], "***");
    assert_eq!(denied["attributes"]["request.referer"], "/?token=***");
    assert!(!field(denied, "code").is_empty() && denied["latency_seconds"].as_f64().unwrap() > 0.0);
    assert_eq!(field(allowed, "decision_id"), field(quota, "decision_id"));
    assert_ne!(field(allowed, "decision_id"), field(denied, "decision_id"));
    assert_eq!((&quota["quota"], &quota["amount"]), (&"requests".into(), &60.into()));
    assert!(allowed["attributes"].is_object() && quota["attributes"].is_null(), "{quota}");
    assert_eq!(report["requests"], 1);
    assert!(!field(report, "decision_id").is_empty());
    assert_eq!(fs::metadata(&log).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(!fs::read_to_string(&log).unwrap().contains("secret"));
    server.until("/metrics", "mixer_adapter_decision_log_lines_total{result=\"written\"} 4");
}

fn check(server: &Server, request: CheckRequest) -> Response<CheckResponse> {
    call(server, "Check", request).unwrap()
}

fn id(metadata: &MetadataMap) -> Option<&str> {
    metadata.get("mixer-adapter-decision-id").map(|id| id.to_str().unwrap())
}

#[test]
fn the_metadata_of_an_answer_has_the_id_of_its_line() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("decisions");
    let server = start(&log, &[]);
    let checked = check(&server, CheckRequest::default());
    // A client with more words than the server has.
    let unknown = ReportRequest { global_word_count: 1_000_000, ..ReportRequest::default() };
    let refused = call::<_, ReportResponse>(&server, "Report", unknown).unwrap_err();
    let lines = lines(&log, 2);
    assert_eq!(Some(field(&lines[0], "decision_id")), id(checked.metadata()));
    assert_eq!(Some(field(&lines[1], "decision_id")), id(refused.metadata()));
    let reported = call::<_, ReportResponse>(&server, "Report", ReportRequest::default()).unwrap();
    assert!(id(reported.metadata()).is_some(), "also without a line");
}

#[test]
fn the_last_decisions_are_recorded_while_they_are_read() {
    let server = Server::start(&["--decision-log-mask", "request.host"]);
    server.until("/readyz", "\nready\n");
    let read = |after: u64| -> Json {
        let answer = server.get(&format!("/decisions?after={after}"));
        serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
    };
    assert_eq!(read(0), serde_json::json!({"last": 0, "missed": 0, "skipped": 0, "decisions": []}));
    let arguments = ["check", "-a", "request.path=/admin?key=1", "-a", "request.host=secret"];
    run(&[&arguments[..], &["--address", &server.grpc]].concat());
    let decisions = read(0);
    let [check] = &decisions["decisions"].as_array().unwrap()[..] else { panic!("{decisions}") };
    assert_eq!((field(check, "kind"), field(check, "verdict")), ("check", "allowed"));
    assert_eq!(check["attributes"]["request.path"], "/admin?key=***");
    assert_eq!(check["attributes"]["request.host"], "***");
    assert!(read(1)["decisions"].as_array().unwrap().is_empty());
    assert!(server.get("/decisions?since=1").contains("400 Bad Request"));
}

#[test]
fn without_a_decision_log_answers_have_no_id_and_there_is_no_metric() {
    let server = Server::start(&[]);
    server.until("/readyz", "\nready\n");
    assert!(id(check(&server, CheckRequest::default()).metadata()).is_none());
    assert!(!server.get("/metrics").contains("decision_log"));
}

#[test]
fn a_decision_log_that_cannot_be_written_is_an_error_at_the_start() {
    let ports = ["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    let refused = run(&[&ports[..], &["--decision-log", "/nowhere/decisions"]].concat());
    assert!(refused.stderr.contains("cannot open --decision-log /nowhere/decisions"), "{}", refused.stderr);
    let refused = run(&[&ports[..], &["--decision-log-sample", "2"]].concat());
    assert!(refused.stderr.contains("write a number from 0 to 1"), "{}", refused.stderr);
}

/// A rule whose reports go to an adapter that is not there.
const UNREACHABLE: &str = "\
kind: handler
metadata: {name: away}
spec: {adapter: noop, connection: {address: '127.0.0.1:1'}, params: {}}
---
kind: instance
metadata: {name: all}
spec: {template: reportnothing, params: {}}
---
kind: rule
metadata: {name: report}
spec: {actions: [{handler: away, instances: [all]}]}
";

#[test]
fn a_failed_report_is_logged_with_the_handler_and_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("config");
    fs::create_dir(&config).unwrap();
    fs::write(config.join("adapters.yaml"), run(&["manifest", "noop"]).stdout).unwrap();
    fs::write(config.join("rules.yaml"), UNREACHABLE).unwrap();
    let log = directory.path().join("log");
    let ports = ["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--log-json"];
    let mut serve = binary();
    serve.args(ports).arg("--config").arg(&config).stderr(fs::File::create(&log).unwrap());
    let (server, _) = Server::spawn(&mut serve);
    server.until("/readyz", "\nready\n");
    let reported = run(&["report", "request.path=/", "--address", &server.grpc]);
    assert_eq!(reported.code, 1, "{reported:?}");
    let line: Json = eventually("the report is logged", || {
        let text = fs::read_to_string(&log).unwrap();
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Json>(line).ok());
        lines.into_iter().find(|line| line["fields"]["message"] == "report failed")
    });
    assert_eq!(line["level"], "WARN");
    let fields = &line["fields"];
    let error = fields["error"].as_str().unwrap();
    assert!(error.contains("away.handler.istio-system: UNAVAILABLE: "), "{error}");
    assert!(fields["peer"].as_str().unwrap().starts_with("127.0.0.1:"), "{fields}");
    assert!(fields["code"].is_string(), "{fields}");
}

#[test]
fn the_level_debug_has_no_frames_of_http_2() {
    let directory = tempfile::tempdir().unwrap();
    let filters = [("debug", false), ("debug,mixer_adapter=debug", false), ("debug,h2=debug", true)];
    for (filter, has_frames) in filters {
        let file = directory.path().join(filter);
        let log = fs::File::create(&file).unwrap();
        let ports = ["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--log", filter];
        let (server, _) = Server::spawn(binary().args(ports).stderr(log));
        server.until("/readyz", "\nready\n");
        run(&["check", "-a", "request.path=/admin", "--address", &server.grpc]);
        let text = eventually("the check is logged", || {
            let text = fs::read_to_string(&file).unwrap();
            text.contains("a request was checked").then_some(text)
        });
        assert_eq!(text.contains("h2::"), has_frames, "{text}");
    }
}

/// Rules whose conditions, instances and calls fail for some paths. `$AWAY` is the address of an adapter that is not there.
const FAILING: &str = r#"
kind: handler
metadata: {name: away, namespace: istio-system}
spec: {adapter: denier, connection: {address: "$AWAY"}}
---
kind: instance
metadata: {name: bare, namespace: istio-system}
spec: {template: checknothing, params: {}}
---
kind: rule
metadata: {name: calls, namespace: istio-system}
spec: {match: request.path == "/call", actions: [{handler: away, instances: [bare]}]}
---
kind: handler
metadata: {name: paths, namespace: istio-system}
spec: {compiledAdapter: listchecker, params: {overrides: [/admin], blacklist: true}}
---
kind: instance
metadata: {name: user, namespace: istio-system}
spec: {compiledTemplate: listentry, params: {value: 'request.headers["x-user"]'}}
---
kind: rule
metadata: {name: instances, namespace: istio-system}
spec: {match: request.path == "/instance", actions: [{handler: paths, instances: [user]}]}
---
kind: rule
metadata: {name: conditions, namespace: istio-system}
spec: {match: 'request.headers["x-user"] == "a"', actions: [{handler: paths, instances: [user]}]}
"#;

#[test]
fn a_failed_decision_and_the_status_of_a_rule_name_the_handler_and_the_cause() {
    let away = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let config = format!("{}\n---\n{}", run(&["manifest", "denier"]).stdout, FAILING.replace("$AWAY", &away));
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("config.yaml"), config).unwrap();
    let log = directory.path().join("decisions.log");
    let config = ["--config", directory.path().to_str().unwrap(), "--on-match-error", "closed"];
    let server = start(&log, &config);
    for path in ["/call", "/instance", "/condition"] {
        run(&["check", "-a", &format!("request.path={path}"), "--address", &server.grpc]);
    }
    let lines = lines(&log, 3);
    let failed: Vec<(&str, &Json)> =
        lines.iter().map(|line| (field(line, "verdict"), &line["failed"])).collect();
    let condition = serde_json::json!({ "rule": "conditions.rule.istio-system", "cause": "condition" });
    let part = |rule: &str, handler: &str, cause: &str| {
        let [rule, handler] =
            [format!("{rule}.rule.istio-system"), format!("{handler}.handler.istio-system")];
        serde_json::json!({ "rule": rule, "handler": handler, "cause": cause })
    };
    let expected = [
        ("failed", &serde_json::json!([condition, part("calls", "away", "UNAVAILABLE")])),
        ("failed", &serde_json::json!([part("instances", "paths", "instance"), condition])),
        ("denied", &serde_json::json!([condition])),
    ];
    for (found, expected) in failed.iter().zip(expected) {
        assert_eq!(found.0, expected.0, "{lines:?}");
        let mut parts = [found.1, expected.1].map(|parts| parts.as_array().unwrap().clone());
        parts.iter_mut().for_each(|parts| parts.sort_by_key(ToString::to_string));
        assert_eq!(parts[0], parts[1], "{lines:?}");
    }
    let status = server.get("/status");
    let status: Json = serde_json::from_str(status.split_once("\r\n\r\n").unwrap().1).unwrap();
    let rules = status["in_use"]["rules"].as_array().unwrap();
    let rule = |name: &str| rules.iter().find(|rule| field(rule, "name").starts_with(name)).unwrap();
    let calls = rule("calls");
    assert_eq!(calls["failed_calls"], serde_json::json!({ "UNAVAILABLE": 1 }));
    assert_eq!(calls["last_failure"]["handler"], "away.handler.istio-system");
    assert_eq!(calls["last_failure"]["cause"], "UNAVAILABLE");
    assert_eq!((&rule("instances")["unbuilt"], &rule("conditions")["failed"]), (&1.into(), &3.into()));
    let page = server.get("/metrics");
    for series in [
        r#"mixer_adapter_rule_calls_total{rule="calls.rule.istio-system",code="UNAVAILABLE"} 1"#,
        r#"mixer_adapter_rule_instance_errors_total{rule="instances.rule.istio-system"} 1"#,
    ] {
        assert!(page.lines().any(|line| line == series), "{series}: {page}");
    }
}
