//! The code of the guide is code that compiles.
#![allow(clippy::unwrap_used)]

use std::fs;

/// The sources that the pages show.
const SOURCES: [&str; 9] = [
    include_str!("../src/main.rs"),
    include_str!("../src/answers.rs"),
    include_str!("../src/settings.rs"),
    include_str!("../src/state.rs"),
    include_str!("../src/context.rs"),
    include_str!("../../embedded/src/lib.rs"),
    include_str!("../../embedded/src/bin/engine.rs"),
    include_str!("../../embedded/tests/embedding.rs"),
    include_str!("../../tagcheck/src/main.rs"),
];

/// The words of a text, so that indentation does not matter.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn the_code_of_each_page_is_compiled() {
    let sources = SOURCES.map(|source| words(source).replace("pub ", ""));
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide");
    let mut blocks = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        for block in text.split("\n```rust\n").skip(1).map(|rest| rest.split("\n```").next().unwrap()) {
            let is_compiled = sources.iter().any(|source| source.contains(&words(block)));
            assert!(is_compiled, "{}: no example has this code:\n{block}", path.display());
            blocks += 1;
        }
    }
    assert!(blocks > 15, "{blocks} blocks of code");
}
