//! Maintenance tasks of the repository: `cargo xtask TASK`.

mod descriptors;
mod envoy_v2;
mod fuzz;
mod generate;
mod perf;
mod process;
mod tool;

use std::{env, process::ExitCode};

use anyhow::{Context as _, Result, bail};

use crate::tool::{CARGO_DENY, CARGO_HACK};

const USAGE: &str = "\
usage: cargo xtask TASK [ARGUMENTS]

  generate  write the files that are generated and committed: the descriptors of Envoy and Istio, the baseline of the protos, and docs/reference
  page      make docs/page.png, the picture of the admin page, by the test that runs it in Chromium under load
  features  lint every crate without features and with each of them (cargo hack); ARGUMENTS go to clippy
  fuzz      run fuzz targets, of which ARGUMENTS are the names (default: all), for a minute each or `--seconds N`
  perf      build the benchmarks and print the figures of docs/performance.md: instructions (by valgrind), ratios, changes, sources, memory; ARGUMENTS select of these
  package   make the packages of all crates, without building them: a registry does not have their dependencies yet
  deny      check licences, bans and sources of all dependencies (deny.toml); ARGUMENTS replace these three checks";

const PACKAGE: [&str; 4] = ["package", "--workspace", "--no-verify", "--allow-dirty"];

const FEATURES: &[&str] = &[
    "hack",
    "--workspace",
    "--ignore-private",
    // See `FACADE_FEATURES`.
    "--exclude",
    "mixer-adapter",
    "--each-feature",
    "--exclude-features",
    // Tests run with `proto`. The last four only add to the program an adapter each, whose crate is checked alone.
    "default,proto,authzen,extauthz,otlp,redisquota",
    "clippy",
    "--locked",
    "--",
    "--deny",
    "warnings",
];

/// The features with which the facade is linted, one at a time. By the manifest, as cargo-hack names packages, cargo would lint the default members
/// of the workspace, and they turn these features on.
const FACADE_FEATURES: [&str; 5] = ["", "cel", "envoy", "redis", "tls"];

const DENY: &[&str] = &["--workspace", "check", "--hide-inclusion-graph", "--deny", "warnings"];

fn main() -> ExitCode {
    match run(env::args().skip(1).collect()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Vec<String>) -> Result<()> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["generate"] => generate::generate(),
        ["page"] => page(),
        ["features", more @ ..] => features(more),
        ["fuzz", "--seconds", seconds, targets @ ..] => {
            fuzz::fuzz(targets, seconds.parse().context("--seconds")?)
        }
        ["fuzz", targets @ ..] => fuzz::fuzz(targets, fuzz::SECONDS),
        ["perf", parts @ ..] => perf::perf(parts),
        ["package"] => process::run(process::cargo().args(PACKAGE)),
        ["deny"] => CARGO_DENY.run(DENY, &["bans", "licenses", "sources"]),
        ["deny", checks @ ..] => CARGO_DENY.run(DENY, checks),
        _ => bail!(USAGE),
    }
}

fn features(more: &[&str]) -> Result<()> {
    CARGO_HACK.run(FEATURES, more)?;
    for feature in FACADE_FEATURES {
        let lint = ["clippy", "--locked", "--package", "mixer-adapter", "--no-default-features"];
        let features = ["--features", feature, "--", "--deny", "warnings"];
        process::run(process::cargo().args(lint).args(features).args(more))?;
    }
    Ok(())
}

/// The test of the page whose picture is in the documentation.
const PAGE_TEST: [&str; 6] =
    ["test", "--test", "it", "page::a_handler_that_goes_down_under_load", "--", "--nocapture"];

/// Runs the test with the optimized server, which takes its whole load.
fn page() -> Result<()> {
    process::run(process::cargo().args(["build", "--release"]))?;
    let server = process::root().join("target/release/mixer-adapter");
    process::run(process::cargo().args(PAGE_TEST).env("REQUIRE_REAL", "1").env("TESTED_PROGRAM", server))?;
    let picture = process::root().join("target/tmp/page-down-1280.png");
    std::fs::copy(picture, process::root().join("docs/page.png")).context("cannot copy the picture")?;
    Ok(())
}
