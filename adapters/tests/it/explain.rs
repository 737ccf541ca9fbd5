//! `explain`, and `/explain` on the admin port.

use std::{fs, net::TcpListener};

use crate::support::{Server, run};
use serde_json::{Value as Json, json};

/// A handler of an adapter elsewhere, by the resources of our own adapters, and rules of this kind for it.
fn elsewhere(address: &str, rules: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("adapters.yaml"), run(&["manifest", "denier"]).stdout).unwrap();
    let handler = format!(
        "kind: handler\nmetadata: {{name: away}}\nspec:\n  adapter: denier\n  connection: {{address: \"{address}\"}}\n  params: {{}}\n---\n"
    );
    fs::write(directory.path().join("rules.yaml"), handler + rules).unwrap();
    directory
}

const CHECKNOTHING: &str = "\
kind: instance
metadata: {name: all}
spec: {template: checknothing, params: {}}
---
kind: rule
metadata: {name: close}
spec:
  match: request.path == \"/admin\"
  actions: [{handler: away, instances: [all]}]
";

fn explain(config: &std::path::Path, arguments: &[&str]) -> crate::support::Ran {
    run(&[&["explain", "--config", config.to_str().unwrap()], arguments].concat())
}

#[test]
fn the_sample_is_explained_without_a_server() {
    let ran = run(&["explain", "--attributes", "request.path=/admin"]);
    assert!(ran.code == 0 && ran.stdout.starts_with("denied: PERMISSION_DENIED: "), "{ran:?}");
    assert!(ran.stdout.contains("check: rule check-path.rule.istio-system: (always) -> matched"), "{ran:?}");
    let json = run(&["explain", "--quota", "requests", "--amount", "7", "--json"]).json();
    assert_eq!(json["quotas"]["requests"]["granted_amount"], 7);
    assert_eq!(json["trace"]["steps"][4]["phase"], "quota");
}

#[test]
fn a_report_is_not_delivered_unless_asked() {
    let arguments = ["explain", "--report", "-a", "response.code=200,request.time=2019-05-06T07:08:09Z"];
    let shown = run(&arguments);
    assert_eq!(shown.code, 0, "{shown:?}");
    assert!(
        shown
            .stdout
            .contains("call log.handler.istio-system (logentry: access.instance.istio-system) NOT MADE"),
        "{shown:?}"
    );
    // The stdio adapter writes to stdout, too.
    let is_delivered =
        |text: &str| text.lines().any(|line| line.starts_with('{') && line.contains("\"code\":"));
    assert!(!is_delivered(&shown.stdout), "{shown:?}");
    let delivered = run(&[&arguments[..], &["--call"]].concat());
    assert!(delivered.code == 0 && is_delivered(&delivered.stdout), "{delivered:?}");
}

#[test]
fn an_adapter_elsewhere_is_called_only_when_asked() {
    let server = Server::start(&[]);
    let directory = elsewhere(&server.grpc, CHECKNOTHING);
    let arguments = ["-a", "request.path=/admin"];
    let shown = explain(directory.path(), &arguments);
    assert!(shown.code == 0 && shown.stdout.starts_with("allowed\n"), "{shown:?}");
    assert!(
        shown
            .stdout
            .contains("call away.handler.istio-system (checknothing: all.instance.istio-system) NOT MADE")
    );
    let called = explain(directory.path(), &[&arguments[..], &["--call"]].concat());
    assert!(called.code == 0 && called.stdout.starts_with("denied: FAILED_PRECONDITION: "), "{called:?}");
}

#[test]
fn a_quota_that_nobody_is_asked_for_is_granted_as_if_it_were_not_configured() {
    let quota = "\
kind: instance
metadata: {name: requests}
spec: {template: quota, params: {dimensions: {}}}
---
kind: rule
metadata: {name: limit}
spec: {actions: [{handler: away, instances: [requests]}]}
";
    let directory = elsewhere("127.0.0.1:1", quota);
    let ran = explain(directory.path(), &["--quota", "requests", "--amount", "5"]);
    assert!(ran.stdout.contains("quota requests: granted 5 of 5, valid for 1m0s\n"), "{ran:?}");
    assert!(ran.stdout.contains("(quota: requests.instance.istio-system) NOT MADE"), "{ran:?}");
}

#[test]
fn a_rule_that_cannot_be_evaluated_and_one_that_does_not_match_say_so() {
    let directory = elsewhere("127.0.0.1:1", CHECKNOTHING);
    let ran = explain(directory.path(), &["-a", "request.path=/x"]);
    assert!(ran.stdout.contains("request.path == \"/admin\" -> did not match\n"), "{ran:?}");
    let ran = explain(directory.path(), &[]);
    assert!(ran.stdout.contains("-> error: attribute `request.path` is missing\n"), "{ran:?}");
    assert!(ran.stdout.contains("\n  request.path: attribute `request.path` is missing\n"), "{ran:?}");
    let closed = explain(directory.path(), &["--on-match-error", "closed"]);
    assert!(
        closed.code == 0 && closed.stdout.starts_with("denied: UNAVAILABLE: condition of close"),
        "{closed:?}"
    );
}

#[test]
fn a_rule_is_explained_with_its_place_and_the_values_in_its_condition() {
    let rules = CHECKNOTHING
        .replace("request.path == \"/admin\"", "(request.path | \"\") == \"/admin\" && request.size > 5");
    let other = "---\nkind: rule\nmetadata: {name: of-shop, namespace: shop}\nspec:\n  actions: [{handler: away.istio-system, instances: [all.istio-system]}]\n";
    let directory = elsewhere("127.0.0.1:1", &(rules + other));
    let ran =
        explain(directory.path(), &["-a", "request.path=/admin,request.size=5,destination.namespace=prod"]);
    let file = directory.path().join("rules.yaml");
    let expected = format!(
        "
namespace \"prod\"
rule of-shop.rule.shop ({0}:18) is not of this namespace, and does not apply
check: rule close.rule.istio-system: (request.path | \"\") == \"/admin\" && request.size > 5 -> did not match
  in {0}:12
  (request.path | \"\") == \"/admin\" = true (BOOL)
  (request.path | \"\") = \"/admin\" (STRING)
  request.path = \"/admin\" (STRING)
  request.size > 5 = false (BOOL)
  request.size = 5 (INT64)
",
        file.display()
    );
    assert!(ran.code == 0 && ran.stdout.contains(&expected), "{ran:?}\n{expected}");
}

#[test]
fn a_rule_in_compat_is_explained_with_its_parts_and_one_in_cel_with_its_attributes() {
    let explained = |language: &str, condition: &str| {
        let rules =
            CHECKNOTHING.replace("match: request.path == \"/admin\"", &format!("match: '{condition}'"));
        let annotated = format!("name: close, annotations: {{policy.istio.io/lang: {language}}}");
        let rules = rules.replace("name: close", &annotated);
        let directory = elsewhere("127.0.0.1:1", &rules);
        let ran = explain(directory.path(), &["-a", "request.path=/x,request.size=5"]);
        let lines: Vec<String> = ran.stdout.lines().map(str::to_owned).collect();
        let rule = lines.iter().position(|line| line.starts_with("check: rule close.")).expect("the rule");
        assert!(lines[rule].ends_with("-> did not match"), "{ran:?}");
        let parts = lines[rule + 2..].iter().take_while(|line| line.starts_with("  "));
        parts.cloned().collect::<Vec<_>>()
    };
    let condition = "(request.method | \"GET\") == \"PUT\" && request.size > 5";
    let parts = [
        "  (request.method | \"GET\") == \"PUT\" = false (BOOL)",
        "  (request.method | \"GET\") = \"GET\" (STRING)",
        "  request.method = \"\" (STRING)",
        "  request.size > 5 = false (BOOL)",
        "  request.size = 5 (INT64)",
    ];
    assert_eq!(explained("COMPAT", condition), parts);
    let parts = ["  request.path = \"/x\" (STRING)", "  request.size = 5 (INT64)"];
    assert_eq!(explained("CEL", "request.path == \"/admin\" && request.size > 5"), parts);
}

#[test]
fn an_adapter_that_fails_fails_the_check_or_denies_it_or_is_passed_over() {
    // A port that was free a moment ago.
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let directory = elsewhere(&free, CHECKNOTHING);
    let explain = |policy: &str| {
        explain(directory.path(), &["--call", "-a", "request.path=/admin", "--on-adapter-error", policy])
    };
    let mixer = explain("mixer");
    assert!(
        mixer.code == 1 && mixer.stderr.starts_with("error: INTERNAL: performing check operation failed")
    );
    assert!(mixer.stdout.contains(" µs -> ERROR: UNAVAILABLE: "), "{mixer:?}");
    assert!(explain("open").stdout.starts_with("allowed\n"));
    assert!(explain("closed").stdout.starts_with("denied: UNAVAILABLE: away.handler.istio-system: "));
}

#[test]
fn a_faulty_configuration_is_an_error_unless_lenient() {
    let directory = elsewhere("127.0.0.1:1", &CHECKNOTHING.replace("handler: away", "handler: afar"));
    let ran = explain(directory.path(), &[]);
    assert!(ran.code == 1 && ran.stdout.is_empty(), "{ran:?}");
    assert!(
        ran.stderr.contains("rules.yaml:16:14: error: close.rule.istio-system: spec.actions[0].handler: "),
        "{ran:?}"
    );
    let lenient = explain(directory.path(), &["--lenient"]);
    assert!(lenient.code == 0 && lenient.stdout.starts_with("allowed\n"), "{lenient:?}");
    let closed = explain(directory.path(), &["--lenient", "--on-config-error", "closed"]);
    assert!(closed.stdout.starts_with("denied: UNAVAILABLE: the configuration has faults"), "{closed:?}");
}

#[test]
fn a_wrong_command_line_exits_with_2() {
    for (arguments, reason) in [
        (&["--on-match-error", "maybe"][..], "[possible values: mixer, open, closed]"),
        (&["--report", "--quota", "x"], "cannot be used with"),
        (
            &["--config", "mcps://127.0.0.1:1"],
            "this command has no certificates; `watch mcps://127.0.0.1:1 --once --write DIR`",
        ),
        (&["--config", "ftp://x"], "ftp:// is not a known scheme"),
        (&["-a", "x"], "is not an attribute"),
    ] {
        let ran = run(&[&["explain"], arguments].concat());
        assert!(ran.code == 2 && ran.stderr.contains(reason), "{arguments:?}: {ran:?}");
    }
}

/// The answer of the admin port, as JSON.
fn body(answer: &str) -> Json {
    serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap()
}

#[test]
fn the_admin_port_explains_a_check_by_query_and_by_body() {
    let server = Server::start(&[]);
    let found = body(&server.get("/explain?request.path=%2Fadmin&source.ip=ip:10.0.0.1"));
    assert_eq!(found["response"]["status"]["code"], "PERMISSION_DENIED");
    assert_eq!(found["trace"]["steps"][0]["rule"], "check-path.rule.istio-system");
    let found = body(&server.post("/explain?quota=requests", &json!({"request.path": "/a+b"}).to_string()));
    assert_eq!(found["response"]["quotas"]["requests"]["granted_amount"], 1);
    assert_eq!(found["trace"]["steps"][1]["built"]["value"]["string_value"], "/a+b");
}

#[test]
fn the_admin_port_explains_a_report_of_several_requests() {
    let server = Server::start(&[]);
    let requests =
        json!([{"response.code": 200, "request.time": "2019-05-06T07:08:09Z"}, {"response.code": 500}]);
    let found = body(&server.post("/explain", &requests.to_string()));
    assert_eq!(found["error"]["code"], "UNKNOWN");
    let steps = found["trace"]["steps"].as_array().unwrap();
    let steps: Vec<&str> = steps.iter().map(|step| step["step"].as_str().unwrap()).collect();
    assert_eq!(steps, ["request", "rule", "instance", "request", "rule", "instance", "call"]);
}

#[test]
fn the_admin_port_refuses_what_it_cannot_read() {
    let server = Server::start(&[]);
    assert!(
        server
            .get("/explain?response.code=x")
            .contains("attribute response.code: \"x\" is not a valid INT64")
    );
    for (path, sent) in [("/explain", "[1]"), ("/explain", "5"), ("/explain?request.path=/x", "{}")] {
        assert!(server.post(path, sent).starts_with("HTTP/1.1 400"), "{path} {sent}");
    }
    // A page in a browser cannot send this without asking first.
    let form =
        "POST /explain HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}";
    assert!(server.send(form).starts_with("HTTP/1.1 415"));
}

#[test]
fn ports_that_other_machines_reach_explain_only_with_the_flag() {
    let start = |arguments| Server::start_on("0.0.0.0:0", arguments).0;
    let server = start(&[]);
    let port = |address: &str| address.rsplit_once(':').unwrap().1.to_owned();
    let check = |server: &Server| {
        let address = format!("127.0.0.1:{}", port(&server.grpc));
        run(&["check", "--explain", "--address", &address, "-a", "request.path=/admin"])
    };
    let ran = check(&server);
    assert!(
        ran.code == 0 && ran.stderr.contains("serve --explain") && !ran.stdout.contains("merged"),
        "{ran:?}"
    );
    assert!(server.get("/explain").starts_with("HTTP/1.1 403"));
    assert!(server.get("/decisions").starts_with("HTTP/1.1 403"));
    // The page has no form then.
    assert!(server.get("/status").contains(r#""explain":false"#));

    let server = start(&["--explain"]);
    assert!(check(&server).stdout.contains("merged: denied"));
    assert!(server.get("/explain").starts_with("HTTP/1.1 200"));
    assert!(server.get("/status").contains(r#""explain":true"#));
}
