//! Pages that promise a behaviour in each row: a file below tests/data names the tests that prove the row.

use std::{collections::BTreeSet, fs, path::Path};

use crate::structure::{ROOT, rust_files};

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(ROOT).join(path)).unwrap()
}

/// The first cells of the rows of a page's tables, up to the first `cells`, without the rows with these headings.
fn keys(page: &str, headings: &[&str], cells: usize) -> Vec<String> {
    let rows = page.lines().filter_map(|line| line.strip_prefix("| "));
    let keys = rows.map(|row| row.split(" | ").take(cells).collect::<Vec<_>>().join(" | "));
    keys.filter(|key| !headings.contains(&key.split(" | ").next().unwrap())).collect()
}

/// Compares the rows of a page with the lines of a file, `KEY: TEST, TEST`. A row without a test has `-`.
fn is_proved(mut rows: Vec<String>, proofs: &str) {
    let text = read(proofs);
    let lines = text.lines().filter(|line| !line.starts_with("# "));
    let (mut keys, tests): (Vec<String>, Vec<&str>) =
        lines.map(|line| line.rsplit_once(": ").unwrap()).map(|(key, tests)| (key.to_owned(), tests)).unzip();
    rows.sort();
    keys.sort();
    assert_eq!(rows, keys, "the rows of the page, and the keys of {proofs}");
    let functions: BTreeSet<String> = rust_files(Path::new(ROOT))
        .iter()
        .flat_map(|(_, text)| text.lines())
        .filter_map(|line| Some(line.split_once("fn ")?.1.split(['(', '<']).next()?.to_owned()))
        .collect();
    let cases = read("tests/data/dispatch/cases.jsonl");
    let exists = |name: &str| {
        name == "-" || functions.contains(name) || cases.contains(&format!("\"id\": \"{name}\""))
    };
    let names = tests.iter().flat_map(|tests| tests.split(", "));
    let missing: Vec<&str> = names.filter(|name| !exists(name)).collect();
    assert!(missing.is_empty(), "{proofs} names tests that do not exist: {missing:?}");
}

#[test]
fn each_path_that_can_allow_by_mistake_is_proved() {
    let rows = keys(&read("docs/operating/what-can-allow-by-mistake.md"), &["cause"], 1);
    assert!(rows.len() > 20, "the page has {} rows", rows.len());
    is_proved(rows, "tests/data/what-can-allow-by-mistake.txt");
}

#[test]
fn each_difference_from_mixer_is_proved() {
    let headings = ["the original", "the original (`mixgen`)", "adapter"];
    let mut rows = keys(&read("docs/compatibility.md"), &headings, 1);
    rows.extend(keys(&read("docs/compatibility/requests.md"), &headings, 1));
    rows.extend(keys(&read("docs/compatibility/adapters.md"), &headings, 2));
    assert!(rows.len() > 80, "the pages have {} rows", rows.len());
    is_proved(rows, "tests/data/compatibility.txt");
}

#[test]
fn each_term_of_the_protocols_is_proved() {
    let mut rows = Vec::new();
    for page in ["adapters", "mcp", "versioning", "xds"] {
        let terms = keys(&read(&format!("docs/protocols/{page}.md")), &["term"], 1);
        rows.extend(terms.into_iter().map(|term| format!("{page} | {term}")));
    }
    assert!(rows.len() > 50, "the pages have {} terms", rows.len());
    is_proved(rows, "tests/data/protocols.txt");
}
