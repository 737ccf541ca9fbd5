//! The command line itself: help, lists, completions, and readers that go away.

use std::{
    collections::BTreeSet,
    fs,
    io::Read as _,
    process::{Command, Stdio},
};

use crate::support::{Ran, Server, binary, debian, run};
use serde_json::{Value, json};

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
        let help = run(&[command, "--help"]);
        assert_eq!(help.code, 0);
        assert!(help.stdout.contains("Examples:\n"), "{command}: {}", help.stdout);
    }
}

/// The commands of the help.
fn commands() -> Vec<String> {
    let help = run(&["-h"]).stdout;
    let section = help.split("Flags of all commands:").next().unwrap();
    let lines =
        section.lines().filter_map(|line| line.strip_prefix("  ")).filter(|line| !line.starts_with(' '));
    lines.map(|line| line.split_whitespace().next().unwrap().to_owned()).collect()
}

#[test]
fn help_fits_a_terminal_and_the_short_one_has_no_variables_and_examples() {
    for command in commands() {
        let help = |flag: &str| {
            let ran: Ran = binary().args([&command, flag]).env("COLUMNS", "80").output().unwrap().into();
            assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{command} {flag}");
            for line in ran.stdout.lines().filter(|line| !line.starts_with("Usage: ")) {
                assert!(line.chars().count() <= 80, "{command} {flag}: {line}");
            }
            ran.stdout
        };
        let (short, long) = (help("-h"), help("--help"));
        assert!(!short.contains("[env: ") && !short.contains("Examples:"), "{command}: {short}");
        assert!(
            long.contains("\nExamples:\n") && long.lines().count() > short.lines().count(),
            "{command}: {long}"
        );
        let flags = |help: &str| -> Vec<String> {
            let words =
                help.lines().filter_map(|line| line.split_whitespace().find(|word| word.starts_with("--")));
            words.map(str::to_owned).collect::<BTreeSet<_>>().into_iter().collect()
        };
        for flag in flags(&short) {
            assert!(long.contains(&flag), "{command}: {flag}");
        }
    }
}

#[test]
fn the_short_help_of_serve_has_at_most_80_lines_and_names_the_long_one() {
    let help = run(&["serve", "-h"]).stdout;
    assert!(help.lines().count() <= 80, "{help}");
    assert!(help.ends_with("--help has more flags.\n"), "{help}");
}

#[test]
fn help_of_serve_is_in_sections() {
    let help = run(&["serve", "--help"]).stdout;
    for heading in ["Configuration:", "Limits:", "Log and traces:", "Flags of all commands:"] {
        assert!(help.lines().any(|line| line == heading), "{heading}: {help}");
    }
}

#[test]
fn every_command_has_a_manual_page_without_faults() {
    let directory = tempfile::tempdir().unwrap();
    let ran = run(&["man", "--directory", directory.path().to_str().unwrap()]);
    assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (0, "", ""));
    let page = |name: &str| fs::read_to_string(directory.path().join(name)).unwrap();
    assert!(page("mixer-adapter.1").contains("mixer\\-adapter\\-serve(1)"));
    for command in commands() {
        let page = page(&format!("mixer-adapter-{command}.1"));
        assert_eq!(run(&["man", &command]).stdout, page);
        assert!(
            page.contains("\n.SH EXAMPLES\n") && page.contains("\n.SH \"FLAGS OF ALL COMMANDS\"\n"),
            "{page}"
        );
    }
    assert_eq!(run(&["man", "sreve"]).code, 2);

    let Some(groff) = debian::program("groff", "groff-base") else { return };
    for entry in fs::read_dir(directory.path()).unwrap() {
        let path = entry.unwrap().path();
        let ran = Command::new(&groff).args(["-ww", "-man", "-Tutf8", "-P-cbu"]).arg(&path).output().unwrap();
        let ran = Ran::from(ran);
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{}", path.display());
        assert!(ran.stdout.contains("\nEXAMPLES\n") || path.ends_with("mixer-adapter.1"), "{}", ran.stdout);
    }
}

#[test]
fn variables_of_commands_are_named_after_them_and_those_of_serve_are_not() {
    let serve = run(&["serve", "--help"]).stdout;
    assert!(serve.contains("[env: MIXER_ADAPTER_CONFIG=]") && serve.contains("[env: MIXER_ADAPTER_LISTEN=]"));
    let mut seen = BTreeSet::new();
    for command in commands() {
        let help = run(&[&command, "--help"]).stdout;
        let variables =
            help.split("[env: MIXER_ADAPTER_").skip(1).map(|rest| rest.split('=').next().unwrap());
        for variable in variables.filter(|name| !["OUTPUT", "JSON"].contains(name)) {
            let prefix = format!("{}_", command.to_uppercase().replace('-', "_"));
            assert!(command == "serve" || variable.starts_with(&prefix), "{command}: {variable}");
            assert!(seen.insert(variable.to_owned()), "{variable} has two meanings");
        }
    }
}

#[test]
fn a_variable_close_to_that_of_a_flag_is_warned_about() {
    let mut command = binary();
    command.args(["validate", "config/sample.yaml"]);
    for (name, value) in [
        ("MIXER_ADAPTER_LISTN", "127.0.0.1:0"),
        ("MIXER_ADAPTER_LISTEN", "127.0.0.1:0"),
        // Of an adapter, of Kubernetes for a service, and of another program.
        ("MIXER_ADAPTER_PROMETHEUS_LISTEN", "127.0.0.1:0"),
        ("MIXER_ADAPTER_PORT", "tcp://10.0.0.1:9091"),
        ("MIXER_ADAPTER_SERVICE_HOST", "10.0.0.1"),
        ("MIXER_ADAPTER_FAVOURITE_DISH", "soup"),
    ] {
        command.env(name, value);
    }
    let ran: Ran = command.output().unwrap().into();
    let warning =
        "warning: no flag has the variable MIXER_ADAPTER_LISTN; did you mean MIXER_ADAPTER_LISTEN?\n";
    assert_eq!((ran.code, ran.stderr.as_str()), (0, warning));
}

#[cfg(not(feature = "proto"))]
#[test]
fn a_command_of_a_feature_that_this_build_lacks_names_the_feature() {
    for arguments in [&["proto"][..], &["proto", "check", "--help"]] {
        let output = run(arguments);
        assert_eq!(output.code, 2, "{}", output.stderr);
        assert!(output.stderr.contains("build it with --features proto"), "{}", output.stderr);
    }
}

#[test]
fn a_server_without_threads_is_a_usage_error() {
    let ran = run(&["serve", "--threads", "0"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""));
    assert!(ran.stderr.starts_with("error: invalid value '0' for '--threads <N>': "), "{ran:?}");
}

/// `validate` with this file of flags, and further arguments.
fn with_flags(text: &str, arguments: &[&str]) -> Ran {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("flags"), text).unwrap();
    let mut command = binary();
    command.args(["validate", "--flags-file", "flags"]).args(arguments).current_dir(directory.path());
    command.env("MIXER_ADAPTER_VALIDATE_MAX", "7").output().unwrap().into()
}

#[test]
fn flags_are_read_from_a_file_and_those_of_the_command_line_replace_them() {
    let config = concat!(env!("CARGO_MANIFEST_DIR"), "/config/sample.yaml");
    let flags = format!(
        "# For CI\n--output json\n\n--warnings-as-errors   # also these\n--config \"{config}\"\n--max=0\n"
    );
    let ran = with_flags(&flags, &[]);
    assert_eq!((ran.code, ran.json()["errors"].clone()), (0, json!(0)), "{ran:?}");
    let yaml = with_flags(&flags, &["--output=yaml"]);
    assert!(yaml.code == 0 && yaml.stdout.contains("\nerrors: 0\n"), "{yaml:?}");
    assert_eq!(with_flags("", &[config]).code, 0);
}

#[test]
fn a_fault_of_a_file_of_flags_has_its_line() {
    let config = concat!(env!("CARGO_MANIFEST_DIR"), "/config/sample.yaml");
    for (flags, error) in [
        ("\n--otput json", "flags:2: validate has no flag --otput; did you mean --output?"),
        ("--max many", "flags:1: invalid value 'many' for '--max <N>': invalid digit found in string"),
        (
            "--warnings-as-errors x",
            "flags:1: unexpected value 'x' for '--warnings-as-errors' found; no more were expected",
        ),
        ("--max", "flags:1: a value is required for '--max <N>' but none was supplied"),
        ("validate", "flags:1: write a flag, such as --listen 127.0.0.1:9091"),
        ("--flags-file x", "flags:1: validate has no flag --flags-file"),
        ("--config 'a", "flags:1: the quote that begins the value does not end on this line"),
    ] {
        let ran = with_flags(flags, &[config]);
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{flags}");
        assert!(ran.stderr.starts_with(&format!("error: {error}")), "{flags}: {}", ran.stderr);
    }
    let ran = run(&["--flags-file", "nowhere", "validate", config]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.starts_with("error: --flags-file: cannot read nowhere: "), "{}", ran.stderr);
}

#[test]
fn colours_are_for_people() {
    let config = tempfile::NamedTempFile::with_suffix(".yaml").unwrap();
    fs::write(config.path(), "kind: Rule\nmetadata: {name: r, namespace: n}\n").unwrap();
    let path = config.path().to_str().unwrap();
    let validate = ["validate", path];
    let escape = '\u{1b}';
    let plain = run(&validate);
    assert!(plain.code == 1 && !plain.stdout.contains(escape), "{plain:?}");
    assert_eq!(run(&[&validate[..], &["--color", "never"]].concat()).stdout, plain.stdout);
    let coloured = run(&[&validate[..], &["--color=always"]].concat()).stdout;
    assert!(coloured.contains("\u{1b}[1m\u{1b}[31merror\u{1b}[0m: "), "{coloured:?}");
    for format in ["json", "yaml", "sarif", "github"] {
        let data = run(&["--color", "always", "validate", path, "-o", format]);
        assert!(!data.stdout.contains(escape), "{format}: {data:?}");
    }
    assert!(run(&["--color", "always", "validate", "-h"]).stdout.contains(escape));
    assert!(!run(&["validate", "-h"]).stdout.contains(escape));
    assert!(run(&["check", "--color", "always", "--address", "127.0.0.1:1"]).stderr.contains(escape));
    let no_colour: Ran = binary().args(validate).env("NO_COLOR", "1").output().unwrap().into();
    assert_eq!(no_colour.stdout, plain.stdout);
    assert_eq!(run(&["check", "--color", "blue"]).code, 2);
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
    status           Status
    status.code      int32
    status.message   string
    status.details   list of object with @type
    valid_duration   duration
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
    assert_eq!(denier["config"]["message"], "adapter.denier.config.Params");
    let field = &denier["config"]["fields"][2];
    assert_eq!((&field["name"], &field["type"]), (&json!("valid_use_count"), &json!("int32")));
    assert!(field["meaning"].as_str().unwrap().starts_with("For how many requests "), "{field}");
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
    for arguments in
        [&["adapters"][..], &["adapters", "--json"], &["manifest"], &["completions", "bash"], &call]
    {
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

#[test]
fn resources_are_printed_as_data_without_comments() {
    let upstream = ["envoy-config", "--upstream", "127.0.0.1:8080"];
    let text = run(&upstream).stdout;
    let json = run(&[&upstream[..], &["-o", "json"]].concat()).json();
    assert_eq!(serde_saphyr::from_str::<Value>(&text).unwrap(), json);

    for arguments in [&["manifest", "denier", "--handler-example"][..], &["envoy-config", "--istio"]] {
        let resources: Vec<Value> = serde_saphyr::from_multiple(&run(arguments).stdout).unwrap();
        let json = run(&[arguments, &["-o", "json"]].concat()).stdout;
        let lines: Vec<Value> = json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(lines == resources && lines.len() > 2, "{json}");
        let yaml = run(&[arguments, &["-o", "yaml"]].concat()).stdout;
        assert_eq!(serde_saphyr::from_multiple::<Value>(&yaml).unwrap(), resources);
        assert!(!yaml.lines().any(|line| line.trim_start().starts_with('#')), "{yaml}");
    }
}

/// Output of a command on a terminal, until it has this text.
fn on_terminal(command: &str, until: &str) -> Option<String> {
    let script = debian::program("script", "bsdutils")?;
    let mut child = Command::new(script)
        .args(["--quiet", "--flush", "--command", &format!("exec {command}"), "/dev/null"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut shown, mut part) = (String::new(), [0; 1024]);
    let mut terminal = child.stdout.take().unwrap();
    while !shown.contains(until) {
        let length = terminal.read(&mut part).unwrap();
        assert!(length > 0, "{command} ends without {until}: {shown}");
        shown.push_str(&String::from_utf8_lossy(&part[..length]));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    Some(shown)
}

#[test]
fn a_terminal_has_colours_and_the_progress_of_long_commands() {
    let server = Server::start(&[]);
    let program = env!("CARGO_BIN_EXE_mixer-adapter");
    let case = r#"{"id": "true", "expr": "true", "attributes": {}, "bag": {}, "expect": {"type": "BOOL", "value": {"t": "bool", "v": true}}}"#;
    let folder = tempfile::tempdir().unwrap();
    let cases = folder.path().join("cases.jsonl");
    std::fs::write(&cases, format!("{case}\n").repeat(300_000)).unwrap();
    let eval = format!("{program} eval --cases {}", cases.display());
    if let Some(shown) = on_terminal(&eval, " of 300000 lines (") {
        assert!(!shown.contains('\n'), "one line that is replaced: {shown:?}");
    }
    let check =
        format!("env -u NO_COLOR TERM=xterm {program} check request.path=/admin --address {}", server.grpc);
    if let Some(shown) = on_terminal(&check, "took ") {
        assert!(shown.starts_with("\u{1b}[1m\u{1b}[31mdenied\u{1b}[0m: "), "{shown:?}");
    }
}
