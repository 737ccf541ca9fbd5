//! Pages whose commands are run as printed.

use std::{
    fs,
    net::TcpListener,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::{binary, envoy};

/// The pages whose steps are followed by `tutorial.rs`, to the letter of their output.
pub(crate) const TUTORIALS: [&str; 5] = [
    "docs/migration.md",
    "docs/troubleshooting.md",
    "docs/tutorial-gitops.md",
    "docs/tutorial-mixer.md",
    "docs/tutorial.md",
];

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// All pages of the repository, with their paths from its root.
pub(crate) fn pages() -> Vec<(PathBuf, String)> {
    let mut pages = Vec::new();
    read_pages(root(), &mut pages);
    pages.sort();
    pages
}

fn read_pages(folder: &Path, pages: &mut Vec<(PathBuf, String)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy();
        if path.is_dir() && !name.starts_with('.') && name != "target" {
            read_pages(&path, pages);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            let text = fs::read_to_string(&path).unwrap();
            pages.push((path.strip_prefix(root()).unwrap().to_owned(), text));
        }
    }
}

/// Commands, with their output if the page shows it.
pub(crate) struct Step<'p> {
    pub(crate) commands: &'p str,
    pub(crate) shown: Option<&'p str>,
    pub(crate) mark: Option<Mark<'p>>,
}

/// A comment in the line before a block, without which the commands are run.
pub(crate) enum Mark<'p> {
    /// `<!-- run by PATH -->`: another test.
    RunBy(&'p str),
    /// `<!-- not run: REASON -->`
    NotRun(&'p str),
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
        steps.push(Step {
            commands,
            shown,
            mark: mark(rest[..start].lines().next_back().unwrap_or_default()),
        });
        // With the end of the line before, where the next block may begin.
        rest = &rest[rest.len() - after.len() - 1..];
    }
}

fn mark(line: &str) -> Option<Mark<'_>> {
    let comment = line.strip_prefix("<!-- ")?.strip_suffix(" -->")?;
    let run_by = comment.strip_prefix("run by ").map(Mark::RunBy);
    run_by.or_else(|| comment.strip_prefix("not run: ").map(Mark::NotRun))
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
    (9901, "MIXER_ADAPTER_SOURCE_LISTEN"),
];

/// The output of a shell for each step of a page, up to the first failure.
struct Printed {
    steps: Vec<String>,
    success: bool,
    errors: String,
}

/// Runs the steps of a page in one shell, in a directory, with free ports in place of those on the page.
fn execute(steps: &[Step<'_>], prelude: &str, directory: &Path, environment: &[(&str, String)]) -> Printed {
    // Separated by lines that no step prints.
    let mark = |step: usize| format!("=== step {step} ===\n");
    let script = steps
        .iter()
        .enumerate()
        .map(|(number, step)| format!("printf '{}\\n'\n{}\n", mark(number).trim_end(), step.commands));
    let mut script: String = script.collect();
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
    let ran = shell
        .args(["300", "bash", "-c", &format!("{prelude}\n{script}")])
        .current_dir(directory)
        .stdin(Stdio::null())
        // What it starts in the background ends with it, and is not in the way of the harness's signals.
        .process_group(0)
        .output()
        .unwrap();
    let mut output = String::from_utf8_lossy(&ran.stdout).replace('\r', "");
    for (free, port) in &free_ports {
        output = output.replace(&format!(":{free}"), &format!(":{port}"));
    }
    let mut printed = Vec::new();
    for number in 0..steps.len() {
        let Some((_, after)) = output.split_once(&mark(number)) else { break };
        printed.push(after.split("=== step ").next().unwrap().to_owned());
    }
    let log = fs::read_to_string(directory.join("serve.log")).unwrap_or_default();
    let errors = format!("{}\n{log}", String::from_utf8_lossy(&ran.stderr));
    Printed { steps: printed, success: ran.status.success(), errors }
}

/// The steps of a page that are not run elsewhere.
fn steps_to_run(page: &str) -> Vec<Step<'_>> {
    steps(page).into_iter().filter(|step| step.mark.is_none()).collect()
}

/// Fails if a step of a page did not print what the page shows.
fn expect_shown(name: &str, step: &Step<'_>, printed: &str, errors: &str) {
    let shown = step.shown.unwrap_or_default();
    assert!(
        is_shown(&printed.lines().collect::<Vec<_>>(), &shown.lines().collect::<Vec<_>>()),
        "{name} differs from what happens.\n$ {}\nshown:\n{shown}\nprinted:\n{printed}\n{errors}",
        step.commands,
    );
}

/// Follows a tutorial in an empty directory. What a step prints has to be what the page shows, and nothing if it shows nothing.
pub(crate) fn follow(name: &str, environment: &[(&str, String)]) {
    let page = fs::read_to_string(root().join(name)).unwrap();
    let steps = steps_to_run(&page);
    assert!(steps.len() > 2 && TUTORIALS.contains(&name), "{name}: only {} steps found", steps.len());
    let directory = tempfile::tempdir().unwrap();
    let prelude = "trap 'kill $(jobs -p) 2> /dev/null; wait' EXIT";
    let printed = execute(&steps, prelude, directory.path(), environment);
    for (number, step) in steps.iter().enumerate() {
        let of_step = printed.steps.get(number);
        let of_step = of_step.unwrap_or_else(|| panic!("step {number} did not run: {}", printed.errors));
        expect_shown(name, step, of_step, &printed.errors);
    }
}

/// The programs of pages that are not tutorials. A server goes on in the background once it serves, and the next of its kind takes its place.
const PRELUDE: &str = r#"
set -e -o pipefail
declare -A servers
trap 'kill "${servers[@]}" 2> /dev/null || true; wait || true' EXIT
mixer-adapter() {
    case $1 in
    serve | source | watch) ;;
    *) command mixer-adapter "$@"; return ;;
    esac
    if [ "${servers[$1]}" ]; then
        kill "${servers[$1]}"
        wait "${servers[$1]}" || true
    fi
    exec {output}< <(exec mixer-adapter "$@")
    servers[$1]=$!
    while IFS= read -r line <&$output; do
        echo "$line"
        case $1$line in
        watch* | *"Try "*) return ;;
        esac
    done
    return 1
}
# CI builds and tests; here the program is built already.
cargo() {
    [ "$1" = run ] || return 0
    until [ "$1" = -- ]; do shift; done
    mixer-adapter "${@:2}"
}
curl() { command curl --fail --no-progress-meter --header 'prefer: wait=1' "$@"; }
envoy() { [ -z "$ENVOY" ] || "$ENVOY" --mode validate --log-level warn "$@"; }
"#;

/// Runs the commands of a page, in a directory with a configuration, certificates and tokens. They have to succeed, and print what the page shows of their output.
pub(crate) fn run_commands(name: &Path, page: &str) {
    // `galley` stands for a server of configuration.
    let page = page.replace("galley:", "127.0.0.1:").replace("0.0.0.0:", "127.0.0.1:");
    let steps = steps_to_run(&page);
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
    fs::create_dir(directory.path().join("config")).unwrap();
    write("config/sample.yaml", include_str!("../../../config/sample.yaml"));
    let authority = test_pki::Authority::new();
    let certified = authority.issue(&["localhost"]);
    for (name, text) in
        [("ca.pem", &authority.pem()), ("cert.pem", &certified.certificate), ("key.pem", &certified.key)]
    {
        write(name, text);
    }
    write("tokens", "admin 0123456789abcdef0123456789abcdef\n");
    std::os::unix::fs::symlink(root().join("examples"), directory.path().join("examples")).unwrap();
    let envoy = if steps.iter().any(|step| step.commands.contains("envoy -c")) {
        envoy::program().map(|path| path.display().to_string())
    } else {
        None
    };
    let environment = [("ENVOY", envoy.unwrap_or_default())];
    let printed = execute(&steps, PRELUDE, directory.path(), &environment);
    let (name, last) = (name.display().to_string(), printed.steps.len() - 1);
    assert!(
        printed.success && last == steps.len() - 1,
        "{name}: $ {}\nfails: {}\n{}",
        steps[last].commands,
        printed.steps[last],
        printed.errors
    );
    for (step, of_step) in steps.iter().zip(&printed.steps).filter(|(step, _)| step.shown.is_some()) {
        expect_shown(&name, step, of_step, &printed.errors);
    }
}
