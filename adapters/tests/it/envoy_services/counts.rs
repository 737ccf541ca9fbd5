//! The numbers of a server behind an Envoy: with cached answers, too, every place has the same ones.

use std::{fs, time::Duration};

use serde_json::Value as Json;

use super::{
    mesh::{Mesh, PATHS},
    support::{envoy::is_there, eventually_within, load::Load},
};

#[test]
fn five_thousand_denials_are_as_many_everywhere_although_most_answers_are_cached() {
    if !is_there() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("decisions");
    let flags = ["--decision-log", log.to_str().unwrap(), "--cached-checks", "all"];
    let mesh = Mesh::start(PATHS, &flags, &[]);
    let load = Load::start(&mesh.front(), &["/admin"], |path, response| match response.status {
        403 => Ok(()),
        status => Err(format!("{path}: {status}")),
    });
    load.until_sent(5_000);
    let denials = load.finish();
    let number = |series: &str| mesh.metric(series).parse::<u64>().unwrap();
    let [rule, handler] = ["rule=\"paths.rule.istio-system\"", "handler=\"paths.handler.istio-system\""];
    assert_eq!(number("mixer_adapter_checks_total{outcome=\"denied\"}"), denials);
    assert_eq!(number(&format!("mixer_adapter_rule_matches_total{{{rule}}}")), denials);
    // As the panel of the dashboard and the page show it.
    assert_eq!(number(&format!("mixer_adapter_rule_denials_total{{{rule}}}")), denials);
    let calls = number(&format!("mixer_adapter_handler_calls_total{{{handler},code=\"OK\"}}"));
    let cached = number(&format!("mixer_adapter_handler_cached_calls_total{{{handler}}}"));
    assert!(cached > 0);
    assert_eq!(calls + cached, denials);
    assert_eq!(number(&format!("mixer_adapter_rule_cached_matches_total{{{rule}}}")), cached);
    let status = mesh.server.get("/status");
    let status: Json = serde_json::from_str(status.split_once("\r\n\r\n").unwrap().1).unwrap();
    let rule = &status["in_use"]["rules"][0];
    assert_eq!((&rule["matched"], &rule["denied"]), (&denials.into(), &denials.into()));
    assert_eq!(status["in_use"]["handlers"][0]["cached"], cached);
    eventually_within(Duration::from_secs(60), "all denials are logged", || {
        let text = fs::read_to_string(&log).unwrap();
        let denied = text.lines().filter(|line| {
            line.contains("\"verdict\":\"denied\"")
                && line.contains("\"rules\":[\"paths.rule.istio-system\"]")
        });
        (denied.count() as u64 == denials).then_some(())
    });
}
