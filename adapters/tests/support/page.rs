//! Pages of docs/ whose steps are run as they stand there.

use std::{
    fs,
    net::TcpListener,
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Command, Stdio},
};

use super::binary;

/// Commands, with their output if the page shows it.
pub(crate) struct Step<'p> {
    pub(crate) commands: &'p str,
    pub(crate) shown: Option<&'p str>,
}

/// The blocks ```sh of a page, and its comments `<!--sh`, which readers do not see, each with the block ```text that follows it at once.
pub(crate) fn steps(page: &str) -> Vec<Step<'_>> {
    let mut steps = Vec::new();
    let mut rest = page;
    loop {
        let block = rest.find("\n```sh\n").map(|start| (start, "\n```sh\n", "\n```\n"));
        let comment = rest.find("\n<!--sh\n").map(|start| (start, "\n<!--sh\n", "\n-->\n"));
        let Some((start, open, close)) = block.into_iter().chain(comment).min() else { return steps };
        let (commands, after) = rest[start + open.len()..].split_once(close).unwrap();
        let shown = after.strip_prefix("```text\n").map(|shown| shown.split_once("\n```").unwrap().0);
        steps.push(Step { commands, shown });
        // With the end of the line before, where the next block may begin.
        rest = &rest[rest.len() - after.len() - 1..];
    }
}

/// Whether an output is as shown: `...` in a line is any text, and a line of it any number of lines.
pub(crate) fn is_shown(output: &[&str], shown: &[&str]) -> bool {
    match shown {
        [] => output.is_empty(),
        ["...", rest @ ..] => (0..=output.len()).any(|skipped| is_shown(&output[skipped..], rest)),
        [line, rest @ ..] => {
            output.first().is_some_and(|first| is_line(first, line)) && is_shown(&output[1..], rest)
        }
    }
}

pub(crate) fn is_line(line: &str, shown: &str) -> bool {
    let Some((start, rest)) = shown.split_once("...") else { return line == shown };
    let Some(line) = line.strip_prefix(start) else { return false };
    let starts = line.char_indices().map(|(index, _)| index).chain([line.len()]);
    starts.into_iter().any(|index| is_line(&line[index..], rest))
}

/// The ports on the pages, and the variables by which the program takes other ones; those without one are only in the commands.
const PORTS: [(u16, &str); 6] = [
    (9091, "MIXER_ADAPTER_LISTEN"),
    (15014, "MIXER_ADAPTER_ADMIN"),
    (42422, "MIXER_ADAPTER_PROMETHEUS_LISTEN"),
    (10000, "MIXER_ADAPTER_ENVOY_CONFIG_ENVOY_LISTEN"),
    (8080, ""),
    (9901, ""),
];

/// Runs every step of a page in one shell, in an empty directory, with free ports in place of those on the page. What a step
/// prints has to be what the page shows, and nothing if it shows nothing.
pub(crate) fn follow(name: &str, environment: &[(&str, String)]) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let page = fs::read_to_string(root.join(name)).unwrap();
    let steps = steps(&page);
    assert!(steps.len() > 2, "{name}: only {} steps found", steps.len());

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
    shell.env("PATH", path).env("NO_COLOR", "1").envs(environment.iter().map(|(name, value)| (name, value)));
    // The variable of `serve` is its former name.
    shell.env("MIXER_ADAPTER_SOURCE_ADMIN", "127.0.0.1:0");
    // All at once, so that no two are equal.
    let listeners = PORTS.map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
    let mut free_ports = Vec::new();
    for ((port, variable), listener) in PORTS.iter().zip(&listeners) {
        let address = listener.local_addr().unwrap().to_string();
        let free = address.rsplit_once(':').unwrap().1.to_owned();
        script = script
            .replace(&format!(":{port}"), &format!(":{free}"))
            .replace(&format!(" {port} "), &format!(" {free} "));
        if *variable == "MIXER_ADAPTER_LISTEN" {
            for command in ["CALL", "CHECK", "ENVOY_CONFIG", "QUOTA", "REPORT"] {
                shell.env(format!("MIXER_ADAPTER_{command}_ADDRESS"), &address);
            }
        }
        if !variable.is_empty() {
            shell.env(variable, &address);
        }
        free_ports.push((free, port));
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
    let mut output = String::from_utf8_lossy(&ran.stdout).into_owned();
    for (free, port) in &free_ports {
        output = output.replace(&format!(":{free}"), &format!(":{port}"));
    }
    let errors = String::from_utf8_lossy(&ran.stderr);
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
            "{name} differs from what happens.\n$ {}\nshown:\n{}\nprinted:\n{of_step}\n{errors}\n{log}",
            step.commands,
            shown.join("\n"),
        );
    }
}
