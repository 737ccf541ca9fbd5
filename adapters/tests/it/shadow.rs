//! A second configuration in the shadow of a server, and the comparison of two configurations by its decision log.

use std::{fs, path::Path};

use crate::support::{Ran, Server, binary, eventually, mixer::call, run};
use mixer_adapter_engine::proto::istio::mixer::v1::{
    CheckRequest, CheckResponse, check_request::QuotaParams,
};
use serde_json::Value as Json;

/// Denies one path, and limits requests.
fn config(path: &str, max_amount: u32) -> String {
    format!(
        "\
kind: handler
metadata: {{name: paths}}
spec: {{compiledAdapter: listchecker, params: {{overrides: [{path}], blacklist: true}}}}
---
kind: instance
metadata: {{name: path}}
spec: {{compiledTemplate: listentry, params: {{value: 'request.url_path | \"/\"'}}}}
---
kind: rule
metadata: {{name: paths}}
spec: {{actions: [{{handler: paths, instances: [path]}}]}}
---
kind: handler
metadata: {{name: limits}}
spec: {{compiledAdapter: memquota, params: {{quotas: [{{name: requests, max_amount: {max_amount}, valid_duration: 1h}}]}}}}
---
kind: instance
metadata: {{name: requests}}
spec: {{compiledTemplate: quota, params: {{dimensions: {{}}}}}}
---
kind: rule
metadata: {{name: limits}}
spec: {{actions: [{{handler: limits, instances: [requests]}}]}}
"
    )
}

/// A quota in the shadow, of the handler and the instance that are in use.
const SHADOWED_LIMIT: &str = "\
---
kind: rule
metadata: {name: limits-again, annotations: {mixer-adapter/mode: shadow}}
spec: {actions: [{handler: limits, instances: [requests]}]}
";

fn start(directory: &Path, config: &str, second: Option<&str>) -> Server {
    let write = |name: &str, text: &str| {
        fs::create_dir_all(directory.join(name)).unwrap();
        fs::write(directory.join(name).join("config.yaml"), text).unwrap();
        directory.join(name)
    };
    let mut serve = binary();
    serve.args(["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--log", "off", "--config"]);
    serve.arg(write("live", config)).arg("--decision-log").arg(directory.join("decisions"));
    if let Some(second) = second {
        serve.arg("--shadow").arg(write("second", second));
    }
    let server = Server::spawn(&mut serve).0;
    server.until("/readyz", "\nready\n");
    server
}

fn check(server: &Server, path: &str) -> Ran {
    run(&["check", "--fail", "-a", &format!("request.url_path={path}"), "--address", &server.grpc])
}

fn evaluated(server: &Server, series: &str, count: u64) {
    let series = format!("mixer_adapter_shadow_{series} {count}");
    eventually(&series, || server.get("/metrics").contains(&series).then_some(()));
}

#[test]
fn differences_of_a_second_configuration_are_in_the_log_by_which_diff_finds_them_too() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(directory.path(), &config("/admin", 10), Some(&config("/private", 10)));
    eventually("the second configuration is in use", || {
        (!server.get("/readyz").contains("--shadow")).then_some(())
    });
    for (path, code) in [("/", 0), ("/private", 0), ("/admin", 1)] {
        assert_eq!(check(&server, path).code, code, "{path}");
    }
    let of_rule = |difference: &str| {
        format!(
            "rule_differences_total{{shadow=\"configuration\",rule=\"paths.rule.istio-system\",difference=\"{difference}\"}}"
        )
    };
    evaluated(&server, &of_rule("would_deny"), 1);
    evaluated(&server, &of_rule("would_allow"), 1);
    evaluated(&server, "evaluations_total{shadow=\"configuration\",result=\"same\"}", 1);
    let log = directory.path().join("decisions");
    let differences = eventually("both differences are logged", || {
        let text = fs::read_to_string(&log).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str::<Json>(line).unwrap());
        let lines: Vec<Json> = lines.filter(|line| line["kind"] == "shadow").collect();
        (lines.len() == 2).then_some(lines)
    });
    let denied = differences.iter().find(|line| line["verdict"] == "would_deny").unwrap();
    assert!(denied["message"].as_str().unwrap().contains("/private"), "{denied}");

    let [live, second] = ["live", "second"].map(|name| directory.path().join(name).display().to_string());
    let log = log.display().to_string();
    let ran = run(&["diff", &live, &second, "--requests", &log]);
    assert_eq!((ran.code, ran.stderr.as_str()), (1, ""), "{ran:?}");
    let rules: Vec<&str> = ran.stdout.lines().filter(|line| line.starts_with("rule ")).collect();
    assert_eq!(
        rules,
        [
            format!("rule paths.rule.istio-system ({live}/config.yaml:9): 1 would be allowed"),
            format!("rule paths.rule.istio-system ({second}/config.yaml:9): 1 would be denied"),
        ]
    );
    assert!(ran.stdout.ends_with("3 requests: 2 different answers\n"), "{ran:?}");
    assert_eq!(run(&["diff", &live, &live, "--requests", &log]).code, 0);
}

#[test]
fn faults_of_a_second_configuration_are_warnings_of_a_ready_server() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(directory.path(), &config("/admin", 10), Some("kind: rule\nmetadata: {name: r}\n"));
    server.until("/readyz", "warning: --shadow: ");
    assert_eq!((check(&server, "/").code, check(&server, "/admin").code), (0, 1));
    let ready = server.get("/readyz");
    assert!(ready.starts_with("HTTP/1.1 200") && ready.contains("the rule does nothing"), "{ready}");
}

#[test]
fn a_quota_in_the_shadow_counts_apart_from_the_one_in_use() {
    let directory = tempfile::tempdir().unwrap();
    let both = config("/admin", 3) + SHADOWED_LIMIT;
    let server = start(directory.path(), &both, Some(&config("/admin", 1)));
    eventually("the second configuration is in use", || {
        (!server.get("/readyz").contains("--shadow")).then_some(())
    });
    let granted = |(number, expected): (usize, i64)| {
        let params = QuotaParams { amount: 1, best_effort: false };
        let request = CheckRequest {
            quotas: [("requests".to_owned(), params)].into(),
            deduplication_id: number.to_string(),
            ..CheckRequest::default()
        };
        let response = call::<_, CheckResponse>(&server, "Check", request).unwrap().into_inner();
        assert_eq!(response.quotas["requests"].granted_amount, expected);
    };
    // Each shadow has used its own counters as often as the quota in use, which grants three.
    [1, 1, 1, 0].into_iter().enumerate().for_each(granted);
    evaluated(&server, "evaluations_total{shadow=\"rules\",result=\"same\"}", 8);
    let of_rule = "rule_differences_total{shadow=\"configuration\",rule=\"limits.rule.istio-system\",difference=\"would_deny\"}";
    evaluated(&server, of_rule, 2);
}
