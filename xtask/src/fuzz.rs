//! Runs fuzz targets.

use std::fs;

use anyhow::{Context as _, Result, ensure};

use crate::process::{cargo, command, output, root, run, target};

/// Time for each target where none is given, in seconds.
pub(crate) const SECONDS: u32 = 60;

/// Flags with which libFuzzer sees the branches that an input takes: those of cargo-fuzz but for the sanitizers, which only a nightly compiler has.
const COVERAGE: &[&str] = &[
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Cdebug-assertions",
    "-Coverflow-checks",
];

/// Runs targets, or all of them, for `seconds` each. They start from their seeds and from what earlier runs added to the corpus below
/// `target/tools/fuzz`, where inputs that show a defect are written, too.
///
/// # Errors
/// A target does not exist, or found a defect.
pub(crate) fn fuzz(names: &[&str], seconds: u32) -> Result<()> {
    let all = targets()?;
    for name in names {
        ensure!(all.iter().any(|known| known == name), "unknown target {name}; there are {}", all.join(", "));
    }
    let selected = all.iter().filter(|target| names.is_empty() || names.contains(&target.as_str()));
    for name in selected {
        let found = target("fuzz").join(name);
        let corpus = found.join("corpus");
        fs::create_dir_all(&corpus).with_context(|| format!("cannot create {}", corpus.display()))?;
        run(cargo()
            .env("CARGO_ENCODED_RUSTFLAGS", COVERAGE.join("\x1f"))
            .args(["run", "--release", "--locked", "--package", "mixer-adapter-fuzz"])
            // Takes minutes for each target, and finds nothing more.
            .args(["--config", "profile.release.lto = \"off\""])
            // With a target named, build scripts and macros are built without the flags.
            .args(["--target", &host()?, "--target-dir", "target/fuzz", "--bin", name])
            .args(["--", &format!("-max_total_time={seconds}"), "-timeout=20", "-max_len=65536"])
            .args(["-rss_limit_mb=2048", "-print_final_stats=1", "-verbosity=0"])
            .arg(format!("-artifact_prefix={}/", found.display()))
            .arg(corpus)
            .arg(root().join("fuzz/seeds").join(name)))?;
    }
    Ok(())
}

/// Returns the target triple of this machine.
fn host() -> Result<String> {
    let version = output(command("rustc").arg("-vV"))?;
    let version = String::from_utf8_lossy(&version);
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).context("rustc -vV names no host")
}

/// Returns the names of all targets.
fn targets() -> Result<Vec<String>> {
    let folder = root().join("fuzz/fuzz_targets");
    let mut names = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))? {
        names.extend(entry?.path().file_stem().map(|name| name.to_string_lossy().into_owned()));
    }
    names.sort();
    Ok(names)
}
