//! Runs fuzz targets.

use std::fs;

use anyhow::{Context as _, Result, ensure};

use crate::process::{cargo, root, run, target};

/// Time for each target, in seconds.
const SECONDS: u32 = 60;

/// Runs targets, or all of them, on their seeds. Without instrumentation, which only a nightly compiler makes (`cargo +nightly fuzz`), inputs
/// are changed at random.
///
/// # Errors
/// A target does not exist, or found a defect.
pub(crate) fn fuzz(names: &[&str]) -> Result<()> {
    let all = targets()?;
    for name in names {
        ensure!(all.iter().any(|known| known == name), "unknown target {name}; there are {}", all.join(", "));
    }
    let selected = all.iter().filter(|target| names.is_empty() || names.contains(&target.as_str()));
    for name in selected {
        let found = target("fuzz").join(name);
        fs::create_dir_all(&found).with_context(|| format!("cannot create {}", found.display()))?;
        run(cargo()
            .args([
                "run",
                "--locked",
                "--manifest-path",
                "fuzz/Cargo.toml",
                "--target-dir",
                "target",
                "--bin",
                name,
            ])
            .args(["--", &format!("-max_total_time={SECONDS}"), "-timeout=20", "-max_len=65536"])
            .arg(format!("-artifact_prefix={}/", found.display()))
            .arg(root().join("fuzz/seeds").join(name)))?;
    }
    Ok(())
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
