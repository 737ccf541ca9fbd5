//! The configurations of the adapters: handlers that were written for one version are read by the next.

use std::path::Path;

use mixer_adapter_versioning::{ProtoSet, assert_baseline};

#[test]
fn published_configurations_remain_readable() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    assert_baseline(
        &ProtoSet::open(&[folder], &[]).unwrap(),
        &folder.join("baseline.txt"),
        env!("CARGO_PKG_VERSION"),
    );
}
