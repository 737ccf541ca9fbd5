//! Access logs.

use std::path::Path;

use serde_json::Value as Json;

use super::{
    limits::LIMIT,
    mesh::{Mesh, PATHS},
    support::{envoy::is_there, eventually},
};

/// A rule that logs the requests in a file.
fn log_to(file: &Path) -> String {
    format!(
        r#"
kind: handler
metadata: {{name: log, namespace: istio-system}}
spec: {{compiledAdapter: stdio, params: {{logStream: FILE, outputPath: "{}", outputAsJson: true}}}}
---
kind: instance
metadata: {{name: entry, namespace: istio-system}}
spec:
  compiledTemplate: logentry
  params:
    severity: '"info"'
    timestamp: request.time
    variables:
      path: request.path
      code: response.code | 0
      flags: context.proxy_error_code
      denied: check.error_code | 0
      decision: check.decision_id | "none"
---
kind: rule
metadata: {{name: log, namespace: istio-system}}
spec: {{actions: [{{handler: log, instances: [entry]}}]}}
"#,
        file.display()
    )
}

#[test]
fn each_request_is_reported_with_its_decision() {
    if !is_there() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("log");
    let log = log_to(&file);
    let flags = ["--envoy-decision-header", "x-decision-id"];
    let mut mesh = Mesh::start(&format!("{PATHS}{log}"), &flags, &[]);
    let answers: Vec<_> = (0..20).map(|_| mesh.get("/shop", &[])).chain([mesh.get("/admin", &[])]).collect();
    eventually("all entries are received", || {
        (mesh.metric("mixer_adapter_envoy_log_entries_total") == "21").then_some(())
    });
    assert_eq!(mesh.metric("mixer_adapter_envoy_log_streams"), "1");
    // What is queued is reported before the server ends.
    mesh.server.signal("TERM");
    eventually("the server has ended", || mesh.server.child.try_wait().unwrap());
    let text = std::fs::read_to_string(&file).unwrap();
    let mut entries: Vec<Json> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(entries.len(), 21, "{text}");
    let denied = entries.iter().position(|entry| entry["path"] == "/admin").unwrap();
    let denied = entries.remove(denied);
    let values = (&denied["code"], &denied["flags"], &denied["denied"]);
    assert_eq!(values, (&403.into(), &"UAEX".into(), &7.into()), "{denied}");
    assert!(entries.iter().all(|entry| entry["code"] == 200 && entry["flags"] == "-"), "{text}");
    let mut ids: Vec<&str> = entries.iter().map(|entry| entry["decision"].as_str().unwrap()).collect();
    ids.push(denied["decision"].as_str().unwrap());
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 21, "{text}");
    // The upstream echoes the headers of requests, and clients see the same id.
    let mut seen: Vec<&str> = answers.iter().map(|answer| answer.header("x-decision-id").unwrap()).collect();
    seen.sort_unstable();
    assert_eq!(seen, ids);
    let allowed = answers.iter().filter(|answer| answer.status == 200);
    assert!(allowed.into_iter().all(|answer| answer.body.contains(answer.header("x-decision-id").unwrap())));
}

#[test]
fn one_id_joins_a_check_its_rate_limit_its_entry_of_the_access_log_and_what_the_client_sees() {
    if !is_there() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let [entries, decisions] = ["entries", "decisions"].map(|name| folder.path().join(name));
    let config = format!("{PATHS}{LIMIT}{}", log_to(&entries).trim_start());
    let flags = ["--envoy-decision-header", "x-decision-id", "--decision-log", decisions.to_str().unwrap()];
    let mut mesh = Mesh::start(&config, &flags, &["--descriptor", "user=x-user"]);
    let answers = ["/shop", "/shop", "/shop", "/admin"].map(|path| mesh.get(path, &["x-user: alice"]));
    assert_eq!(answers.each_ref().map(|answer| answer.status), [200, 200, 429, 403]);
    eventually("all entries are received", || {
        (mesh.metric("mixer_adapter_envoy_log_entries_total") == "4").then_some(())
    });
    mesh.server.signal("TERM");
    eventually("the server has ended", || mesh.server.child.try_wait().unwrap());
    let lines = |file: &Path| -> Vec<Json> {
        let text = std::fs::read_to_string(file).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let (entries, decisions) = (lines(&entries), lines(&decisions));
    for (answer, verdicts) in answers.iter().zip([
        &["allowed", "ok"][..],
        &["allowed", "ok"],
        &["allowed", "over_limit"],
        // Envoy does not request a quota for a request that is denied.
        &["denied"],
    ]) {
        let id = answer.header("x-decision-id").unwrap();
        let decided = decisions.iter().filter(|line| line["decision_id"] == id);
        assert_eq!(decided.map(|line| &line["verdict"]).collect::<Vec<_>>(), verdicts, "{decisions:?}");
        let logged: Vec<_> = entries.iter().filter(|entry| entry["decision"] == id).collect();
        assert!(matches!(logged[..], [entry] if entry["code"] == answer.status), "{entries:?}");
    }
}
