//! The command line itself: help, lists, completions, and readers that go away.
#![allow(clippy::unwrap_used)]

mod support;

use serde_json::json;
use support::{Server, binary, run};

const COMMANDS: [&str; 14] = [
    "serve",
    "check",
    "report",
    "quota",
    "explain",
    "validate",
    "eval",
    "call",
    "adapters",
    "manifest",
    "reference",
    "completions",
    "watch",
    "version",
];

#[test]
fn help_has_every_command_with_examples() {
    let help = run(&["--help"]);
    assert_eq!(help.code, 0);
    for command in COMMANDS {
        assert!(
            help.stdout.lines().any(|line| line.trim_start().starts_with(command)),
            "{command}: {}",
            help.stdout
        );
        for flag in ["--help", "-h"] {
            let help = run(&[command, flag]);
            assert_eq!(help.code, 0);
            assert!(help.stdout.contains("Examples:\n"), "{command}: {}", help.stdout);
        }
    }
}

#[test]
fn a_wrong_command_line_exits_with_2() {
    for arguments in
        [&[][..], &["sreve"], &["serve", "--lisen", "x"], &["completions", "tcsh"], &["adapters", "x"]]
    {
        let ran = run(arguments);
        assert_eq!(ran.code, 2, "{arguments:?}");
        assert!(!ran.stderr.is_empty() && ran.stdout.is_empty(), "{ran:?}");
    }
}

#[test]
fn adapters_are_listed_with_templates_and_fields() {
    let ran = run(&["adapters", "denier"]);
    let expected = "\
denier: Denies every check with a fixed status.
  templates
    checknothing  check
    listentry     check
    quota         quota
  configuration adapter.denier.config.Params
    status           google.rpc.Status
    valid_duration   google.protobuf.Duration
    valid_use_count  int32
";
    assert_eq!((ran.code, ran.stdout.as_str()), (0, expected));

    let all = run(&["adapters", "--json"]).json();
    let denier = all.as_array().unwrap().iter().find(|adapter| adapter["name"] == "denier").unwrap();
    let expected = json!({
        "name": "listentry", "variety": "check", "method": "/listentry.HandleListEntryService/HandleListEntry",
    });
    assert_eq!(denier["templates"][1], expected);
    assert_eq!(denier["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(denier["config"][0]["name"], "adapter.denier.config.Params");
    assert_eq!(denier["config"][0]["fields"][2], json!({"name": "valid_use_count", "type": "int32"}));
}

#[test]
fn completions_are_registered_for_the_program() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let ran = run(&["completions", shell]);
        assert_eq!(ran.code, 0);
        assert!(ran.stdout.contains("mixer-adapter"), "{shell}: {}", ran.stdout);
    }
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let server = Server::start(&[]);
    let call = ["call", "checknothing", "--adapter", "denier", "--address", &server.grpc];
    let call_often = [&call[..], &["--count", "3", "--json"]].concat();
    for arguments in [
        &["adapters"][..],
        &["adapters", "--json"],
        &["manifest"],
        &["completions", "bash"],
        &call,
        &call_often,
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output =
            binary().args(arguments).stdout(writer).stderr(std::process::Stdio::piped()).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), stderr.as_str()), (Some(0), ""), "{arguments:?}");
    }
}

#[test]
fn the_version_has_build_features_and_adapters() {
    let text = run(&["version"]).stdout;
    assert!(text.starts_with(&format!("mixer-adapter {}\ncommit: ", env!("CARGO_PKG_VERSION"))), "{text}");
    let build = run(&["version", "-o", "json"]).json();
    assert_eq!(build["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(build["adapters"]["denier"], env!("CARGO_PKG_VERSION"));
    assert!(build["features"].as_array().unwrap().contains(&json!("envoy")), "{build}");
    assert!(build["compiler"].as_str().unwrap().starts_with("rustc "), "{build}");
    assert!(["debug", "release"].contains(&build["profile"].as_str().unwrap()), "{build}");
}

#[test]
fn every_format_for_programs_has_the_same_data() {
    let config = concat!(env!("CARGO_MANIFEST_DIR"), "/config/sample.yaml");
    for arguments in [
        &["adapters", "denier"][..],
        &["eval", "1 + 2"],
        &["validate", config],
        &["reference", "functions", "match"],
    ] {
        let json = run(&[arguments, &["-o", "json"]].concat());
        assert_eq!(json.code, 0, "{json:?}");
        assert_eq!(run(&[arguments, &["--json"]].concat()).stdout, json.stdout, "{arguments:?}");
        let yaml = run(&[arguments, &["--output", "yaml"]].concat()).stdout;
        assert_eq!(serde_saphyr::from_str::<serde_json::Value>(&yaml).unwrap(), json.json(), "{arguments:?}");
        assert_ne!(yaml, json.stdout, "{arguments:?}");
    }
}
