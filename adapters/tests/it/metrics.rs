//! The metrics of a server: formats, names and series.

use std::{
    fs,
    io::Write as _,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use crate::support::{Server, binary, debian, eventually, eventually_within, http, run};
use serde_json::Value as Json;

/// A path that the sample configuration denies, one that it allows, a quota and two reports, one of which fails.
fn use_sample(server: &Server) {
    server.until("/readyz", "\nready\n");
    let ask = |arguments: &[&str]| run(&[arguments, &["--address", &server.grpc]].concat());
    ask(&["check", "-a", "request.path=/admin"]);
    ask(&["check", "-a", "request.path=/x"]);
    ask(&["quota", "requests", "--amount", "60"]);
    ask(&["report", "-a", "response.code=200"]);
    ask(&["report", "-a", "response.code=0", "-a", "response.code=0"]);
}

fn scrape(server: &Server, headers: &[&str]) -> http::HttpResponse {
    let port = server.admin.rsplit_once(':').unwrap().1;
    let headers = [&["host: localhost"], headers].concat();
    http::request(&format!("127.0.0.1:{port}"), "GET", "/metrics", &headers)
}

/// The output of `promtool check metrics` for a page.
fn lint(promtool: &Path, page: &str) -> String {
    let mut child = Command::new(promtool)
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
}

#[test]
fn the_format_is_the_one_that_the_scraper_accepts() {
    let server = Server::start(&[]);
    server.until("/readyz", "\nready\n");
    let text = scrape(&server, &[]);
    assert_eq!(text.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    assert!(text.body.contains("\n# TYPE mixer_adapter_checks_total counter\n"), "{}", text.body);
    let open = scrape(&server, &["accept: application/openmetrics-text; version=1.0.0, text/plain; q=0.5"]);
    let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!(open.header("content-type"), Some(content_type));
    assert!(open.body.contains("\n# TYPE mixer_adapter_checks counter\n"), "{}", open.body);
    assert!(open.body.ends_with("# EOF\n"), "{}", open.body);
}

#[test]
fn rules_handlers_and_instances_have_series_of_their_own_once_they_are_used() {
    let server = Server::start(&[]);
    server.until("/readyz", "\nready\n");
    let page = scrape(&server, &[]).body;
    for name in ["mixer_adapter_rule_", "mixer_adapter_instance", "mixer_adapter_handler_call", "istio_mcp_"]
    {
        assert!(!page.contains(name), "{page}");
    }
    use_sample(&server);
    let page = scrape(&server, &[]).body;
    for series in [
        // `quota` checks, too.
        r#"mixer_adapter_rule_matches_total{rule="check-path.rule.istio-system"} 3"#,
        r#"mixer_adapter_rule_denials_total{rule="check-path.rule.istio-system"} 1"#,
        r#"mixer_adapter_rule_call_duration_seconds_count{rule="check-path.rule.istio-system"} 3"#,
        r#"mixer_adapter_instances_built_total{instance="path.instance.istio-system"} 3"#,
        r#"mixer_adapter_handler_calls_total{handler="closed-paths.handler.istio-system",code="OK"} 3"#,
        r#"mixer_adapter_handler_call_duration_seconds_count{handler="closed-paths.handler.istio-system"} 3"#,
    ] {
        assert!(page.lines().any(|line| line == series), "{series}: {page}");
    }
}

#[test]
fn the_build_and_the_process_have_metrics() {
    let server = Server::start(&[]);
    let page = scrape(&server, &[]).body;
    let value = |series: &str| {
        let line = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("{series}: {page}")).parse::<f64>().unwrap()
    };
    let version = env!("CARGO_PKG_VERSION");
    assert!(page.contains(&format!("mixer_adapter_build_info{{version=\"{version}\",features=\"")), "{page}");
    for series in
        ["process_resident_memory_bytes", "process_open_fds", "process_threads", "process_start_time_seconds"]
    {
        assert!(value(series) > 0.0, "{series}: {page}");
    }
}

/// Metrics with a value, with one that is not a number, and without the dimension of a label.
const METRICS: &str = r#"
kind: handler
metadata: {name: h, namespace: istio-system}
spec:
  compiledAdapter: prometheus
  params:
    metrics:
    - {instanceName: good.instance.istio-system, name: good, kind: COUNTER, labelNames: [path]}
    - {instanceName: wrong.instance.istio-system, name: wrong, kind: COUNTER, labelNames: [path]}
    - {instanceName: bare.instance.istio-system, name: bare, kind: COUNTER, labelNames: [path]}
---
kind: instance
metadata: {name: good, namespace: istio-system}
spec: {compiledTemplate: metric, params: {value: "2", dimensions: {path: request.path}}}
---
kind: instance
metadata: {name: wrong, namespace: istio-system}
spec: {compiledTemplate: metric, params: {value: "true", dimensions: {path: request.path}}}
---
kind: instance
metadata: {name: bare, namespace: istio-system}
spec: {compiledTemplate: metric, params: {value: "3", dimensions: {}}}
---
kind: rule
metadata: {name: r, namespace: istio-system}
spec: {actions: [{handler: h, instances: [good, wrong, bare]}]}
"#;

#[test]
fn leniently_a_metric_that_cannot_be_is_dropped_and_the_others_of_its_handler_are_not() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("config.yaml"), METRICS).unwrap();
    let config = directory.path().to_str().unwrap();
    let ran = run(&["validate", config]);
    assert_eq!(ran.code, 1, "{ran:?}");
    for fault in ["params.metrics[1].instance_name: ", "params.metrics[2].label_names: "] {
        assert!(ran.stdout.contains(fault) || ran.stderr.contains(fault), "{fault}: {ran:?}");
    }
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let ports = ["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--log", "error"];
    let serve = ["--lenient", "--config", config];
    let (server, _) =
        Server::spawn(binary().args(ports).args(serve).env("MIXER_ADAPTER_PROMETHEUS_LISTEN", &address));
    server.until("/readyz", "\nready\n");
    let ran = run(&["report", "-a", "request.path=/a", "--address", &server.grpc]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let page = http::request(&address, "GET", "/metrics", &["host: localhost"]).body;
    let series: Vec<_> = page.lines().filter(|line| line.starts_with("istio_")).collect();
    assert_eq!(series, ["istio_good{path=\"/a\"} 2"]);
}

#[test]
fn promtool_has_no_objection_but_to_a_name_of_istios() {
    let Some(promtool) = debian::unpacked("promtool", "prometheus") else { return };
    let directory = tempfile::tempdir().unwrap();
    let sample = concat!(env!("CARGO_MANIFEST_DIR"), "/config/sample.yaml");
    fs::copy(sample, directory.path().join("sample.yaml")).unwrap();
    let ports = ["source", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--log", "error", "--config"];
    let (source, _) = Server::spawn(binary().args(ports).arg(directory.path()));
    let server = Server::start(&["--config", &format!("mcp://{}", source.grpc), "--check-cache", "100"]);
    use_sample(&server);
    let page = scrape(&server, &[]).body;
    eventually("the source has counted", || {
        scrape(&source, &[]).body.contains("istio_mcp_request_acks").then_some(())
    });
    // Istio calls a gauge so, and its dashboards know it by that name.
    let known = "istio_mcp_clients_total non-counter metrics should not have \"_total\" suffix\n";
    assert_eq!(lint(&promtool, &page), known);
    assert_eq!(lint(&promtool, &scrape(&source, &[]).body), known);
}

/// A file that is shipped.
fn shipped(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(path).canonicalize().unwrap()
}

#[test]
fn the_rules_that_are_shipped_pass_their_tests() {
    let Some(promtool) = debian::unpacked("promtool", "prometheus") else { return };
    for (command, file) in [("check", "prometheus/rules.yaml"), ("test", "prometheus/rules_test.yaml")] {
        let ran = Command::new(&promtool).args([command, "rules"]).arg(shipped(file)).output().unwrap();
        assert!(ran.status.success(), "{ran:?}");
    }
}

#[test]
fn every_alert_leads_to_its_section() {
    let rules = fs::read_to_string(shipped("prometheus/rules.yaml")).unwrap();
    let rules: Json = serde_saphyr::from_str(&rules).unwrap();
    let groups = rules["groups"].as_array().unwrap().iter();
    let rules = groups.flat_map(|group| group["rules"].as_array().unwrap());
    let alerts: Vec<&Json> = rules.filter(|rule| rule["alert"].is_string()).collect();
    let page = fs::read_to_string(shipped("../docs/operating/alerts.md")).unwrap();
    assert_eq!(page.matches("\n## ").count(), alerts.len());
    for alert in alerts {
        let name = alert["alert"].as_str().unwrap();
        let url = "docs/operating/alerts.md".to_owned() + "#" + &name.to_lowercase();
        assert_eq!(alert["annotations"]["runbook_url"], url);
        assert!(page.contains(&format!("\n## {name}\n")), "{name}");
    }
}

/// A Prometheus that scrapes a server every second and has the rules that are shipped; killed when this is dropped.
struct Prometheus {
    child: Child,
    address: String,
    _directory: tempfile::TempDir,
}

impl Prometheus {
    fn start(program: &Path, target: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let config = directory.path().join("prometheus.yaml");
        let rules = shipped("prometheus/rules.yaml");
        let text = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: [{rules:?}]\n\
             scrape_configs:\n- job_name: mixer-adapter\n  static_configs: [{{targets: [{target:?}]}}]\n"
        );
        fs::write(&config, text).unwrap();
        // Prometheus does not say which port it has chosen for port 0.
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let log = fs::File::create(directory.path().join("log")).unwrap();
        let child = Command::new(program)
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", directory.path().join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        Self { child, address, _directory: directory }
    }

    /// The data of an answer of its API, once there is a successful one.
    fn get(&self, path: &str) -> Option<Json> {
        std::net::TcpStream::connect(&self.address).ok()?;
        let answer: Json = serde_json::from_str(&http::request(&self.address, "GET", path, &[]).body).ok()?;
        (answer["status"] == "success").then(|| answer["data"].clone())
    }

    /// The series of a query.
    fn query(&self, query: &str) -> Option<Vec<Json>> {
        let encoded: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
        self.get(&format!("/api/v1/query?query={encoded}"))?["result"].as_array().cloned()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn every_query_that_is_shipped_is_answered_by_a_real_prometheus() {
    let Some(program) = debian::unpacked("prometheus", "prometheus") else { return };
    let server = Server::start(&["--check-cache", "100", "--cached-checks", "all"]);
    use_sample(&server);
    // Which the cache answers.
    run(&["check", "-a", "request.path=/x", "--address", &server.grpc]);
    let port = server.admin.rsplit_once(':').unwrap().1;
    let prometheus = Prometheus::start(&program, &format!("127.0.0.1:{port}"));
    let limit = Duration::from_secs(60);
    let dashboard = fs::read_to_string(shipped("grafana/dashboard.json")).unwrap();
    let dashboard: Json = serde_json::from_str(&dashboard).unwrap();
    let targets = dashboard["panels"].as_array().unwrap().iter().flat_map(|panel| {
        assert!(!panel["title"].as_str().unwrap().is_empty());
        panel["targets"].as_array().unwrap()
    });
    let queries: Vec<&str> = targets.map(|target| target["expr"].as_str().unwrap()).collect();
    assert!(queries.len() > 15, "{queries:?}");
    for query in queries {
        // As Grafana replaces the variables.
        let query = query.replace("$__rate_interval", "1m").replace("$job", ".+");
        assert!(!query.contains('$'), "{query}");
        eventually_within(limit, &query, || prometheus.query(&query).filter(|series| !series.is_empty()));
    }
    eventually_within(limit, "all rules are evaluated", || {
        let groups = prometheus.get("/api/v1/rules")?;
        let groups = groups["groups"].as_array()?;
        let mut rules = groups.iter().flat_map(|group| group["rules"].as_array().unwrap()).peekable();
        rules.peek()?;
        rules.all(|rule| rule["health"] == "ok").then_some(())
    });
}
