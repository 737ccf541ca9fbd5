//! The tests that the pages of docs/protocols name for their terms exist.

use std::{collections::BTreeSet, fs, path::Path};

#[test]
fn every_term_of_the_protocols_is_proved_by_a_test_that_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let pages = ["mcp", "adapters", "xds", "versioning"]
        .map(|page| fs::read_to_string(root.join("docs/protocols").join(page).with_extension("md")).unwrap());
    let pages = pages.concat();
    let mut functions = BTreeSet::new();
    read_functions(root, &mut functions);
    let rows = pages.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| term "));
    let mut proved = 0;
    for row in rows {
        let proof = row.trim_end_matches(" |").rsplit(" | ").next().unwrap();
        for name in proof.split(", ") {
            let name = name.strip_prefix('`').and_then(|name| name.strip_suffix('`'));
            let name = name.unwrap_or_else(|| panic!("no test: {row}"));
            assert!(functions.contains(name), "there is no test {name}");
            proved += 1;
        }
    }
    assert!(proved > 50, "{proved}");
}

/// Adds the names of all functions below a folder.
fn read_functions(folder: &Path, functions: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            read_functions(&path, functions);
        } else if name.ends_with(".rs") {
            let text = fs::read_to_string(&path).unwrap();
            let declared = text.lines().filter_map(|line| line.split_once("fn ")?.1.split_once('('));
            functions.extend(declared.map(|(name, _)| name.to_owned()));
        }
    }
}
