//! What operators do at a shell: a first configuration, decisions, and why they were made.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use mixer_adapter_config::text_files;

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
fn fmt_changes_the_layout_and_neither_values_nor_comments() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rules.yaml");
    let file = path.display().to_string();
    let written = "# why\nkind: rule\nmetadata:   {name:  r,  namespace: shop }\nspec:\n    actions:\n      -   handler: h  # the first\n          instances: [ i,j ]\n";
    let expected = "# why\nkind: rule\nmetadata: {name: r, namespace: shop}\nspec:\n  actions:\n  - handler: h # the first\n    instances: [i, j]\n";
    fs::write(&path, written).unwrap();
    let ran = run(&["fmt", "--check", &file]);
    assert!(ran.code == 1 && ran.stdout.contains(&format!("differs: {file}")), "{ran:?}");
    assert_eq!(fs::read_to_string(&path).unwrap(), written);
    assert_eq!(run(&["fmt", directory.path().to_str().unwrap()]).code, 0);
    assert_eq!(fs::read_to_string(&path).unwrap(), expected);
    assert_eq!(run(&["fmt", "--check", &file]).code, 0);

    fs::write(directory.path().join("wrong.yaml"), "a: [1\n").unwrap();
    fs::write(&path, written).unwrap();
    let ran = run(&["fmt", directory.path().to_str().unwrap()]);
    assert!(ran.code == 2 && ran.stderr.contains("wrong.yaml"), "{ran:?}");
    assert_eq!(fs::read_to_string(&path).unwrap(), written, "nothing is written");
}

#[test]
fn fmt_replaces_what_a_link_refers_to_and_keeps_its_permissions() {
    let directory = tempfile::tempdir().unwrap();
    let [file, link] = ["rules.yaml", "link.yaml"].map(|name| directory.path().join(name));
    fs::write(&file, "kind:   rule\n").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    std::os::unix::fs::symlink(&file, &link).unwrap();
    let ran = run(&["fmt", directory.path().to_str().unwrap(), link.to_str().unwrap()]);
    assert!(ran.code == 0 && ran.stdout.contains("1 file formatted"), "{ran:?}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "kind: rule\n");
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2, "nothing else is left");
}

#[test]
fn fmt_formats_every_example_once() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/configurations");
    let copy = tempfile::tempdir().unwrap();
    for (number, file) in text_files(&examples).into_iter().enumerate() {
        fs::copy(file, copy.path().join(format!("{number}.yaml"))).unwrap();
    }
    let directory = copy.path().to_str().unwrap();
    let ran = run(&["fmt", directory]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let ran = run(&["fmt", "--check", directory]);
    assert_eq!(ran.code, 0, "{ran:?}");
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
