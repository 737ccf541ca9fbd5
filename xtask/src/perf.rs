//! Measures the figures of docs/performance.md: instructions, which do not depend on the load of the machine, ratios to bare servers in
//! one run, the CPU time of a changed rule, what sources cost, the memory of an idle server, and the size of its program.

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread::sleep,
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};

use crate::process::{cargo, command, output, root, run};

/// The parts of the measurement.
const PARTS: [&str; 5] = ["instructions", "ratios", "changes", "sources", "memory"];

/// Benchmarks of the package `mixer-adapters`, whose program is also measured.
const BENCHES: [&str; 3] = ["engine", "envoy", "serving"];

/// The figures that benchmarks print themselves: the part, the benchmark, and its argument that selects of them.
const PRINTED: [(&str, &str, &str); 7] = [
    ("ratios", "engine", "check"),
    ("ratios", "engine", "rules"),
    ("ratios", "engine", "report"),
    ("ratios", "envoy", ""),
    ("ratios", "serving", ""),
    ("changes", "engine", "build"),
    ("sources", "sources", ""),
];

/// The configuration of the idle server.
const IDLE_CONFIGURATION: &str = "examples/configurations/deny-paths";

/// Calls within the process whose instructions are counted.
struct Counted {
    name: &'static str,
    bench: &'static str,
    /// The kind of call, for benches with several.
    kind: &'static [&'static str],
    /// The numbers of calls in two runs, whose difference is the cost of the calls alone.
    runs: [u64; 2],
    /// Number of requests in a call.
    requests: u64,
}

impl Counted {
    const fn envoy(name: &'static str, kind: &'static [&'static str]) -> Self {
        Self { name, bench: "envoy", kind, runs: [200, 1_200], requests: 1 }
    }
}

const COUNTED: [Counted; 6] = [
    Counted {
        name: "Mixer API, a check by one rule and one adapter",
        bench: "engine",
        ..Counted::envoy("", &[])
    },
    Counted::envoy("Envoy, decoding a check as the bare server does", &["decode"]),
    Counted::envoy("Envoy, a check by one rule and one adapter", &["check"]),
    Counted::envoy("Envoy, a check from the cache", &["cached"]),
    Counted::envoy("Envoy, a rate limit by one quota", &["limit"]),
    Counted {
        runs: [10, 60],
        requests: 50,
        ..Counted::envoy("Envoy, an entry of an access log, one `logentry`", &["log"])
    },
];

/// Builds the benchmarks, and prints the figures of `parts`, or of all of them.
///
/// # Errors
/// A part does not exist, or a program cannot be built or fails.
pub(crate) fn perf(parts: &[&str]) -> Result<()> {
    if let Some(unknown) = parts.iter().find(|part| !PARTS.contains(part)) {
        bail!("unknown part {unknown}; there are {}", PARTS.join(", "));
    }
    let is_wanted = |part| parts.is_empty() || parts.contains(&part);
    let mut programs = BTreeMap::new();
    if parts != ["sources"] {
        programs.extend(build("mixer-adapters", &BENCHES)?);
    }
    if is_wanted("sources") {
        // By itself: the tests of its package need other features of libraries.
        programs.extend(build("mixer-adapter", &["sources"])?);
    }
    println!("{}", description()?);
    if is_wanted("instructions") {
        instructions(&programs)?;
    }
    for (part, bench, selected) in PRINTED {
        if is_wanted(part) {
            run(command(program(&programs, bench)?).args(["--bench", selected]))?;
        }
    }
    if is_wanted("memory") {
        println!("\nan idle server with {IDLE_CONFIGURATION}: {} kB (VmRSS)", idle_memory(&programs)?);
        println!("the program without symbols: {} kB", size_without_symbols(&programs)? / 1000);
    }
    Ok(())
}

/// Builds benchmarks of a package and its program, and returns their paths by name.
fn build(package: &str, benches: &[&str]) -> Result<BTreeMap<String, PathBuf>> {
    let benches = benches.iter().flat_map(|bench| ["--bench", bench]);
    let messages = output(
        cargo()
            .args(["bench", "--locked", "--package", package, "--no-run", "--message-format", "json"])
            .args(benches),
    )?;
    let messages = String::from_utf8(messages)?;
    let mut programs = BTreeMap::new();
    for message in messages.lines() {
        let message: serde_json::Value = serde_json::from_str(message).context("a message of cargo")?;
        if let (Some(name), Some(path)) = (message["target"]["name"].as_str(), message["executable"].as_str())
        {
            programs.insert(name.to_owned(), path.into());
        }
    }
    Ok(programs)
}

fn program<'a>(programs: &'a BTreeMap<String, PathBuf>, name: &str) -> Result<&'a Path> {
    programs.get(name).map(PathBuf::as_path).with_context(|| format!("cargo has not built {name}"))
}

/// Returns the commit, the build and the tools of the measurement.
fn description() -> Result<String> {
    let commit = first_line(command("git").args(["describe", "--always", "--dirty", "--exclude", "*"]))?;
    let rustc = first_line(command("rustc").arg("--version"))?;
    let settings =
        env::vars().filter(|(name, _)| name.starts_with("CARGO_PROFILE_BENCH_") || name == "RUSTFLAGS");
    let settings: String = settings.map(|(name, value)| format!(", {name}={value}")).collect();
    let valgrind = valgrind().unwrap_or_else(|| "valgrind is not installed".to_owned());
    Ok(format!("commit {commit}; {rustc}, profile bench{settings}; {valgrind}"))
}

fn first_line(command: &mut Command) -> Result<String> {
    Ok(String::from_utf8(output(command)?)?.lines().next().unwrap_or_default().to_owned())
}

/// Returns the version of valgrind; `None` if it is not installed.
fn valgrind() -> Option<String> {
    let output = command("valgrind").arg("--version").output().ok()?;
    String::from_utf8(output.stdout).ok().map(|version| version.trim().to_owned())
}

fn instructions(programs: &BTreeMap<String, PathBuf>) -> Result<()> {
    if valgrind().is_none() {
        println!("\ninstructions are not counted: valgrind is not installed");
        return Ok(());
    }
    println!("\n| instructions | per request |\n|---|---|");
    for counted in &COUNTED {
        let program = program(programs, counted.bench)?;
        let [fewer, more] = counted.runs.map(|calls| instructions_of(program, counted.kind, calls));
        let [from, to] = counted.runs;
        let each = more?.saturating_sub(fewer?) / ((to - from) * counted.requests);
        println!("| {} | {each} |", counted.name);
    }
    Ok(())
}

/// Returns the instructions of a program that makes `calls` calls.
fn instructions_of(program: &Path, kind: &[&str], calls: u64) -> Result<u64> {
    let mut command = command("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(program);
    let output = command.arg("in-process").args(kind).arg(calls.to_string()).output()?;
    let text = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?} failed: {text}");
    let collected = text.lines().find_map(|line| line.split_once("Collected :")?.1.trim().parse().ok());
    collected.with_context(|| format!("{command:?} has counted no instructions: {text}"))
}

/// Returns the size in bytes that the program has in a release.
fn size_without_symbols(programs: &BTreeMap<String, PathBuf>) -> Result<u64> {
    let program = program(programs, "mixer-adapter")?;
    let stripped = program.with_extension("stripped");
    run(command("strip").arg("-o").arg(&stripped).arg(program))?;
    Ok(fs::metadata(&stripped)?.len())
}

/// Returns the resident memory in kB of a server without calls, once it has not changed for two seconds.
fn idle_memory(programs: &BTreeMap<String, PathBuf>) -> Result<u64> {
    let any_port = "127.0.0.1:0";
    let mut server = command(program(programs, "mixer-adapter")?);
    server.args(["serve", "--listen", any_port, "--admin", any_port, "--config"]);
    let mut server =
        server.arg(root().join(IDLE_CONFIGURATION)).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let status = format!("/proc/{}/status", server.id());
    let resident = || -> Result<u64> {
        let status = fs::read_to_string(&status).with_context(|| format!("cannot read {status}"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.strip_suffix("kB"));
        Ok(line.context("the server has ended")?.trim().parse()?)
    };
    let settled = || {
        let (mut before, mut equal) = (0, 0);
        while equal < 10 {
            #[expect(clippy::disallowed_methods, reason = "there is no runtime")]
            sleep(Duration::from_millis(200));
            let now = resident()?;
            equal = if now == before { equal + 1 } else { 0 };
            before = now;
        }
        Ok(before)
    };
    let settled = settled();
    server.kill()?;
    server.wait()?;
    settled
}
