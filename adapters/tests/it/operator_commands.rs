//! What operators do at a shell: a first configuration, decisions, and why they were made.

use std::fs;

use crate::support::{Server, run};

#[test]
fn a_first_configuration_passes_its_test_and_is_served() {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("config").display().to_string();
    let ran = run(&["init", &config]);
    assert_eq!(ran.code, 0, "{ran:?}");
    for command in ["validate", "test"] {
        let ran = run(&[command, &config]);
        assert_eq!(ran.code, 0, "{ran:?}");
    }
    let ran = run(&["init", &config]);
    assert!(ran.code == 1 && ran.stderr.contains("exists already"), "{ran:?}");
    let server = Server::start(&[&config]);
    server.until("/readyz", "\nready\n");
    let denied = ["check", "--address", &server.grpc, "request.url_path=/admin"];
    let ran = run(&denied);
    assert!(ran.code == 0 && ran.stdout.starts_with("denied"), "{ran:?}");
    assert_eq!(run(&[&denied[..], &["--fail"]].concat()).code, 1);
    assert_eq!(run(&["check", "--address", &server.grpc, "request.url_path=/x", "--fail"]).code, 0);
    let ran = run(&["explain", &config, "request.url_path=/admin"]);
    assert!(ran.code == 0 && ran.stdout.contains("check: rule check-path.rule.istio-system"), "{ran:?}");
}

#[test]
fn decisions_of_a_log_are_filtered_and_explained_with_any_configuration() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let (log, config) = (path("decisions"), path("config"));
    let server = Server::start(&["--decision-log", &log]);
    server.until("/readyz", "\nready\n");
    for attributes in ["request.path=/admin", "request.path=/x", "request.path=/secret"] {
        run(&["check", "--address", &server.grpc, "-a", attributes, "-a", "source.user=alice"]);
    }
    server.until("/metrics", "mixer_adapter_decision_log_lines_total{result=\"written\"} 3");
    let list = |arguments: &[&str]| {
        let ran = run(&[&["decisions", "--json", "--log-file", &log], arguments].concat());
        assert_eq!(ran.code, 0, "{ran:?}");
        let lines = ran.stdout.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        lines.collect::<Vec<_>>()
    };
    let denied = list(&["--verdict", "denied,failed", "--rule", "check-path"]);
    assert_eq!(denied.len(), 2);
    for (filter, number) in [
        (&["ALICE"][..], 3),
        (&["alice", "/admin"], 1),
        (&["bob"], 0),
        (&["--since", "1h"], 3),
        (&["--until", "1h"], 0),
        (&["-n", "2"], 2),
        (&["--rule", "other"], 0),
    ] {
        assert_eq!(list(filter).len(), number, "{filter:?}");
    }
    let id = denied[0]["decision_id"].as_str().unwrap();
    assert_eq!(list(&["--id", id]).len(), 1);
    let ran = run(&["decisions", "--log-file", &log, "--id", id]);
    assert!(
        ran.stdout.contains("  denied  check  check-path.rule.istio-system  ") && ran.stdout.contains(id),
        "{ran:?}"
    );
    // With the server's configuration, and with another one, which closes other paths.
    let ran = run(&["explain", id, "--log-file", &log, "--admin", &server.admin]);
    assert!(ran.code == 0 && ran.stdout.starts_with("denied"), "{ran:?}");
    run(&["init", &config]);
    let file = directory.path().join("config/paths.yaml");
    fs::write(&file, fs::read_to_string(&file).unwrap().replace("[/admin]", "[/other]")).unwrap();
    let ran = run(&["explain", id, "--log-file", &log, &config]);
    assert!(ran.code == 0 && ran.stdout.starts_with("allowed"), "{ran:?}");
    let ran = run(&["explain", "18872f3a1b0c2d4e-2a", "--log-file", &log]);
    assert!(ran.code == 1 && ran.stderr.contains("there is no decision"), "{ran:?}");
}

#[test]
fn the_help_lists_commands_by_what_people_do() {
    let help = run(&["--help"]).stdout;
    let headings =
        ["Run:", "Try a request:", "Write and check a configuration:", "Look:", "For authors of adapters:"];
    let places: Vec<_> = headings.iter().map(|heading| help.find(heading)).collect();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{help}");
    for command in ["serve", "check", "validate", "decisions", "manifest", "completions"] {
        assert_eq!(help.matches(&format!("\n  {command} ")).count(), 1, "{command}: {help}");
    }
}

#[test]
fn a_misspelt_level_of_the_log_is_an_error() {
    let serve = ["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--log"];
    for (filter, part) in [("infoo", "infoo"), ("mixer_adapter=debug,wran", "wran")] {
        let ran = run(&[&serve[..], &[filter]].concat());
        assert!(ran.code == 2 && ran.stderr.contains(&format!("{part:?} is not a level")), "{ran:?}");
    }
}
