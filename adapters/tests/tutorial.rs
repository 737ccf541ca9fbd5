//! Every step of docs/tutorial.md, in one shell, with free ports in place of those on the page.
#![allow(clippy::unwrap_used)]

mod support;

use std::{
    fs,
    net::TcpListener,
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Command, Stdio},
};

use support::{
    binary,
    envoy::{folder, is_there},
};

/// Commands, with their output if the page shows it.
struct Step<'p> {
    commands: &'p str,
    shown: Option<&'p str>,
}

fn steps(page: &str) -> Vec<Step<'_>> {
    let parts = page.split("\n```sh\n").skip(1);
    let steps = parts.map(|part| {
        let (commands, rest) = part.split_once("\n```\n").unwrap();
        let shown = rest.strip_prefix("```text\n").map(|rest| rest.split_once("\n```").unwrap().0);
        Step { commands, shown }
    });
    steps.collect()
}

/// Whether an output is as shown: `...` in a line is any text, and a line of it any number of lines.
fn is_shown(output: &[&str], shown: &[&str]) -> bool {
    match shown {
        [] => output.is_empty(),
        ["...", rest @ ..] => (0..=output.len()).any(|skipped| is_shown(&output[skipped..], rest)),
        [line, rest @ ..] => {
            output.first().is_some_and(|first| is_line(first, line)) && is_shown(&output[1..], rest)
        }
    }
}

fn is_line(line: &str, shown: &str) -> bool {
    match shown.split_once("...") {
        None => line == shown,
        Some((start, end)) => {
            line.len() >= start.len() + end.len() && line.starts_with(start) && line.ends_with(end)
        }
    }
}

#[test]
fn a_line_with_dots_stands_for_many() {
    assert!(is_shown(&["a", "b", "c"], &["a", "...", "c"]) && is_shown(&["a"], &["a", "..."]));
    assert!(is_shown(&["time: 5 s"], &["time: ... s"]) && !is_shown(&["a", "b"], &["a"]));
    assert!(!is_shown(&["a"], &["b", "..."]) && !is_line("ab", "ab...b"));
}

/// The ports on the page, and the variables by which the program takes other ones; those of the upstream and of Envoy's clients
/// are only in the commands.
const PORTS: [(u16, &str); 5] = [
    (9091, "MIXER_ADAPTER_LISTEN"),
    (15014, "MIXER_ADAPTER_ADMIN"),
    (42422, "MIXER_ADAPTER_PROMETHEUS_LISTEN"),
    (10000, "MIXER_ADAPTER_ENVOY_LISTEN"),
    (8080, ""),
];

#[test]
fn every_step_of_the_tutorial_does_what_it_says() {
    if !is_there() {
        return;
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("docs/tutorial.md");
    let page = fs::read_to_string(page).unwrap();
    let steps = steps(&page);
    assert!(steps.len() > 12, "only {} steps found", steps.len());

    // Separated by lines that no step prints.
    let mark = |step: usize| format!("=== step {step} ===");
    let script = steps
        .iter()
        .enumerate()
        .map(|(number, step)| format!("echo '{}'\n{}\n", mark(number), step.commands));
    let mut script: String = script.collect();
    let directory = tempfile::tempdir().unwrap();
    let program = binary();
    let path = format!(
        "{}:{}",
        Path::new(program.get_program()).parent().unwrap().display(),
        std::env::var("PATH").unwrap()
    );
    let mut shell = Command::new("timeout");
    shell.env("PATH", path).env("MIXER_ADAPTER_ENVOY_FOLDER", folder());
    // All at once, so that no two are equal.
    let listeners = PORTS.map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
    for ((port, variable), listener) in PORTS.iter().zip(&listeners) {
        let address = listener.local_addr().unwrap().to_string();
        let free = address.rsplit_once(':').unwrap().1.to_owned();
        script = script
            .replace(&format!(":{port}"), &format!(":{free}"))
            .replace(&format!(" {port} "), &format!(" {free} "));
        if *variable == "MIXER_ADAPTER_LISTEN" {
            shell.env("MIXER_ADAPTER_ADDRESS", &address);
        }
        if !variable.is_empty() {
            shell.env(variable, &address);
        }
    }
    drop(listeners);
    let script = format!("trap 'kill $(jobs -p) 2> /dev/null; wait' EXIT\n{script}");
    let ran = shell
        .args(["300", "bash", "-c", &script])
        .current_dir(directory.path())
        .stdin(Stdio::null())
        // What it starts in the background ends with it, and is not in the way of the harness's signals.
        .process_group(0)
        .output()
        .unwrap();
    let (output, errors) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    let log = fs::read_to_string(directory.path().join("serve.log")).unwrap_or_default();
    for (number, step) in steps.iter().enumerate() {
        let of_step = output.split(&format!("{}\n", mark(number))).nth(1);
        let of_step =
            of_step.unwrap_or_else(|| panic!("step {number} did not run: {output}\n{errors}\n{log}"));
        let of_step = of_step.split("=== step ").next().unwrap().replace('\r', "");
        let lines: Vec<&str> = of_step.lines().collect();
        let shown: Vec<&str> = step.shown.unwrap_or_default().lines().collect();
        assert!(
            is_shown(&lines, &shown),
            "docs/tutorial.md differs from what happens.\n$ {}\nshown:\n{}\nprinted:\n{of_step}\n{errors}\n{log}",
            step.commands,
            shown.join("\n"),
        );
    }
}
