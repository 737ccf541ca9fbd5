//! Records the compiler, the target and, in release builds from a checkout, the commit, for the command `version`; writes the
//! descriptors of the services for reflection.

use std::{env, process::Command};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let variable = |name| env::var(name).unwrap_or_default();
    let compiler = output(&variable("RUSTC"), &["--version"]);
    println!("cargo::rustc-env=BUILD_COMPILER={}", compiler.unwrap_or_default());
    println!("cargo::rustc-env=BUILD_TARGET={}", variable("TARGET"));
    println!("cargo::rustc-env=BUILD_PROFILE={}", variable("PROFILE"));
    mixer_adapter_build::descriptors(
        "mixer.bin",
        &[
            "mixer/adapter/model/v1beta1/infrastructure_backend.proto",
            "mixer/v1/mixer.proto",
            "mixer_adapter/v1/explain.proto",
        ],
    );
    mixer_adapter_build::descriptors(
        "envoy.bin",
        &[
            "envoy/service/accesslog/v3/als.proto",
            "envoy/service/auth/v3/external_auth.proto",
            "envoy/service/ratelimit/v3/rls.proto",
        ],
    );
    // In other builds each commit would compile the crate again.
    let commit = (variable("PROFILE") == "release").then(commit).flatten();
    println!("cargo::rustc-env=BUILD_COMMIT={}", commit.unwrap_or_default());
}

/// The commit of the checkout that this package is the root of.
fn commit() -> Option<String> {
    let git = |arguments: &[&str]| output("git", arguments);
    if git(&["rev-parse", "--show-toplevel"])? != env::var("CARGO_MANIFEST_DIR").ok()? {
        return None;
    }
    println!("cargo::rerun-if-changed={}/logs/HEAD", git(&["rev-parse", "--absolute-git-dir"])?);
    let modified =
        if git(&["status", "--porcelain", "--untracked-files=no"])?.is_empty() { "" } else { "-modified" };
    Some(git(&["rev-parse", "--short=12", "HEAD"])? + modified)
}

fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output =
        Command::new(program).args(arguments).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}
