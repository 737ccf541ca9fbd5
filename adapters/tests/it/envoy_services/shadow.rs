//! Deciders in the shadow of others, behind Envoy.

use std::{
    net::TcpListener,
    time::{Duration, Instant},
};

use super::{
    mesh::{Mesh, metric, nobody},
    support::{Server, envoy::is_there, eventually, http::HttpConnection, recorder::Recorder},
};
use crate::decisions::answer_with_metadata;

/// A decider, and the rule that asks it if a condition holds.
fn asking(name: &str, address: &str, condition: &str, annotations: &str) -> String {
    format!(
        "---
kind: handler
metadata: {{name: {name}, namespace: istio-system}}
spec: {{compiledAdapter: extauthz, params: {{url: 'http://{address}', timeout: 10s}}}}
---
kind: rule
metadata: {{name: {name}, namespace: istio-system, annotations: {{{annotations}}}}}
spec: {{match: '{condition}', actions: [{{handler: {name}, instances: [request]}}]}}
"
    )
}

const SHADOW: &str = "mixer-adapter/mode: shadow";

const INSTANCE: &str = "kind: instance
metadata: {name: request, namespace: istio-system}
spec: {compiledTemplate: authorization, params: {action: {method: request.method, path: request.path}}}
";

/// A decider with one answer, after a time.
fn decider(code: i32, delay: Duration) -> Recorder {
    Recorder::start(move |_| {
        #[expect(clippy::disallowed_methods, reason = "a decider takes time")]
        std::thread::sleep(delay);
        Ok(answer_with_metadata(code, &[]))
    })
}

/// The number of evaluations in the shadow with a result.
fn evaluated(server: &Server, result: &str) -> u64 {
    let series = format!("mixer_adapter_shadow_evaluations_total{{shadow=\"rules\",result=\"{result}\"}}");
    metric(server, &series).parse().unwrap()
}

#[test]
fn a_decider_in_the_shadow_that_is_wrong_dead_or_silent_changes_no_answer_and_is_counted() {
    if !is_there() {
        return;
    }
    const REQUESTS: u64 = 100;
    let (allowing, denying) = (decider(0, Duration::ZERO), decider(7, Duration::ZERO));
    // Accepts connections, and does not answer.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let config = [
        INSTANCE.to_owned(),
        asking("first", &allowing.address, "true", ""),
        asking("second", &denying.address, "request.url_path.endsWith(\"/denied\")", ""),
        asking("wrong", &denying.address, "request.url_path.startsWith(\"/wrong\")", SHADOW),
        asking("dead", &nobody(), "request.url_path.startsWith(\"/dead\")", SHADOW),
        asking(
            "silent",
            &silent.local_addr().unwrap().to_string(),
            "request.url_path.startsWith(\"/silent\")",
            SHADOW,
        ),
    ];
    let mesh = Mesh::start(&config.concat(), &["--shadow-timeout", "1s"], &[]);
    let mut connection = HttpConnection::open(&mesh.front());
    let mut send = |shadow: &str| {
        for (end, status) in [("allowed", 200), ("denied", 403)] {
            for _ in 0..REQUESTS / 2 {
                assert_eq!(connection.get(&format!("/{shadow}/{end}"), &[]).status, status, "{shadow} {end}");
            }
        }
    };
    let counted = |requests: u64| {
        eventually("each request is counted", || {
            let results = ["same", "would_deny", "failed", "dropped"];
            let counts = results.map(|result| evaluated(&mesh.server, result));
            (counts.iter().sum::<u64>() == requests).then_some(counts)
        })
    };
    // An answer in the shadow that denies what is denied anyway is the same.
    send("wrong");
    assert_eq!(counted(REQUESTS), [REQUESTS / 2, REQUESTS / 2, 0, 0]);
    send("dead");
    assert_eq!(counted(2 * REQUESTS), [REQUESTS, REQUESTS, 0, 0]);
    send("silent");
    counted(3 * REQUESTS);
    for rule in ["wrong", "dead"] {
        let series = format!(
            "mixer_adapter_shadow_rule_differences_total{{shadow=\"rules\",rule=\"{rule}.rule.istio-system\",difference=\"would_deny\"}}"
        );
        assert_eq!(mesh.metric(&series), (REQUESTS / 2).to_string(), "{rule}");
    }
}

#[test]
#[ignore = "measures 40,000 requests: cargo test --release -p mixer-adapters --test it latency_of_two -- --ignored --nocapture"]
fn the_latency_of_two_deciders_and_one_in_the_shadow_is_that_of_the_slowest() {
    const ROUNDS: usize = 20;
    const REQUESTS: usize = 1_000;
    const MAX_ADDED: Duration = Duration::from_micros(300);
    if !is_there() {
        return;
    }
    let (slowest, fast) = (decider(0, Duration::from_millis(2)), decider(0, Duration::ZERO));
    let denying = decider(7, Duration::ZERO);
    let alone = INSTANCE.to_owned() + &asking("slowest", &slowest.address, "true", "");
    let both = alone.clone()
        + &asking("fast", &fast.address, "true", "")
        + &asking("shadow", &denying.address, "true", SHADOW);
    let meshes = [alone, both].map(|config| Mesh::start(&config, &[], &[]));
    let mut connections = meshes.each_ref().map(|mesh| HttpConnection::open(&mesh.front()));
    let mut latencies = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        for (connection, latencies) in connections.iter_mut().zip(&mut latencies) {
            for _ in 0..REQUESTS {
                let start = Instant::now();
                assert_eq!(connection.get("/", &[]).status, 200);
                latencies.push(start.elapsed());
            }
        }
    }
    let p50 = latencies.each_mut().map(|latencies| {
        latencies.sort_unstable();
        latencies[latencies.len() / 2]
    });
    println!("p50 of the slowest alone {:?}, with another one and one in the shadow {:?}", p50[0], p50[1]);
    let [_, both] = &meshes;
    eventually("all differences are counted", || {
        (evaluated(&both.server, "would_deny") == (ROUNDS * REQUESTS) as u64).then_some(())
    });
    assert_eq!(["same", "failed", "dropped"].map(|result| evaluated(&both.server, result)), [0; 3]);
    assert!(p50[1] <= p50[0] + MAX_ADDED, "{p50:?}");
}
