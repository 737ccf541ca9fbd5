//! Access logs.

use serde_json::Value as Json;

use crate::{
    mesh::{Mesh, PATHS},
    support::{envoy::is_there, eventually},
};

#[test]
fn each_request_is_reported_with_its_decision() {
    if !is_there() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("log");
    let log = format!(
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
    );
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
