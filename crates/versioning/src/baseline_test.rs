//! Tests that hold protos to their baseline.

use std::{fs, path::Path};

use crate::{Baseline, ProtoSet, check, record};

/// Defines a test that holds an author's protos to a baseline: `baseline!("config.proto")`, or with the path of the baseline.
///
/// `mixer-adapter-versioning` is a dev-dependency. Paths are relative to the crate, and the baseline is `baseline.txt` unless stated otherwise. `UPDATE_PROTO_BASELINE=1 cargo test`
/// records compatible changes in it. Deprecations proceed by the version of the crate.
///
/// ```
/// mixer_adapter_versioning::baseline!("config.proto");
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! baseline {
    ($protos:expr $(,)?) => {
        $crate::baseline!($protos, "baseline.txt");
    };
    ($protos:expr, $baseline:expr $(,)?) => {
        #[test]
        fn published_protos_remain_compatible() {
            let folder = ::std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
            match $crate::ProtoSet::open(&[folder.join($protos)], &[]) {
                Ok(set) => $crate::assert_baseline(&set, &folder.join($baseline), env!("CARGO_PKG_VERSION")),
                Err(error) => panic!("{error}"),
            }
        }
    };
}

/// Checks protos against a baseline in a test. With `UPDATE_PROTO_BASELINE=1` compatible changes are recorded in it.
///
/// # Panics
/// Something breaks the policy, a file cannot be read or written, or `release` is not a version.
pub fn assert_baseline(set: &ProtoSet, file: &Path, release: &str) {
    let release = match release.parse() {
        Ok(release) => Some(release),
        Err(error) => panic!("{error}"),
    };
    let text = fs::read_to_string(file).unwrap_or_default();
    let mut baseline: Baseline = match text.parse() {
        Ok(baseline) => baseline,
        Err(error) => panic!("{}: {error}", file.display()),
    };
    let update = std::env::var_os("UPDATE_PROTO_BASELINE").is_some_and(|update| update == "1");
    let violations = if update {
        record(set, &mut baseline, release).err().unwrap_or_default()
    } else {
        check(set, &baseline, release)
    };
    let lines: Vec<String> = violations.iter().map(ToString::to_string).collect();
    assert!(
        lines.is_empty(),
        "the protos break the policy, or have changes that are not recorded; with UPDATE_PROTO_BASELINE=1 compatible ones are written to \
         {}\n{}",
        file.display(),
        lines.join("\n"),
    );
    if update && let Err(error) = fs::write(file, baseline.to_string()) {
        panic!("{}: cannot be written: {error}", file.display());
    }
}
