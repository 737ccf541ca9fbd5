//! The configurations of examples/configurations: each is valid and does what its tests say.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::support::run;

/// The directories of examples, by name.
fn examples() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("examples/configurations");
    let entries = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path());
    let mut examples: Vec<PathBuf> = entries.filter(|path| path.is_dir()).collect();
    examples.sort();
    examples
}

#[test]
fn every_example_is_valid_and_passes_its_tests() {
    let examples = examples();
    assert_eq!(examples.len(), 16);
    for example in examples {
        let example = example.to_str().unwrap();
        let validated = run(&["validate", example]);
        assert!(
            validated.code == 0 && validated.stdout.ends_with(": 0 errors, 0 warnings\n"),
            "{validated:?}"
        );
        let tested = run(&["test", example]);
        assert!(tested.code == 0 && tested.stdout.ends_with(" passed, 0 failed\n"), "{tested:?}");
    }
}

#[test]
fn the_readme_lists_every_example() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("examples/configurations");
    let readme = fs::read_to_string(folder.join("README.md")).unwrap();
    let mut listed: Vec<PathBuf> = readme
        .lines()
        .filter_map(|line| Some(folder.join(line.strip_prefix("| [")?.split(']').next()?)))
        .collect();
    listed.sort();
    assert_eq!(listed, examples());
}

/// Files of tests have no expectation of headers.
#[test]
fn the_headers_of_the_example_are_changed() {
    let folder = examples().into_iter().find(|path| path.ends_with("header-operations")).unwrap();
    let ran = run(&[
        "explain",
        "--config",
        folder.to_str().unwrap(),
        "source.principal=cluster.local/ns/shop/sa/cart",
    ]);
    let expected = "\
route directive
  request header x-caller set to \"cluster.local/ns/shop/sa/cart\"
  request header x-internal-user removed
  response header x-served-by appended with \"unknown\"
";
    assert!(ran.stdout.contains(expected), "{ran:?}");
}
