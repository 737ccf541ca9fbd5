//! Whatever the text, reading it ends with resources and faults: nothing panics, and every fault can be read.

mod read;

use std::fs;

use proptest::prelude::*;
use read::read;

fn corpus() -> Vec<String> {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/config_text");
    let mut files: Vec<_> = fs::read_dir(directory).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    files.iter().map(|file| fs::read_to_string(file).unwrap()).collect()
}

#[test]
fn the_corpus_is_read() {
    let corpus = corpus();
    assert!(!corpus.is_empty());
    corpus.iter().for_each(|text| read(text));
}

/// Pieces of which resources are made, and some that do not belong.
fn pieces() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "kind: ",
        "rule",
        "instance",
        "handler",
        "adapter",
        "template",
        "attributemanifest",
        "List",
        "metadata:",
        "name: ",
        "namespace: ",
        "spec:",
        "params:",
        "connection:",
        "timeout: ",
        "template: ",
        "actions:",
        "instances: ",
        "items:",
        "attributes:",
        "valueType: ",
        "\n",
        "\n",
        "\n  ",
        "\n    ",
        "\n- ",
        "\n---\n",
        "{",
        "}",
        "[",
        "]",
        ", ",
        "\"",
        "'",
        "`",
        "&a ",
        "*a",
        "<<: ",
        "!!str ",
        "|",
        ">",
        "n",
        "off",
        "yes",
        "1",
        "1.5",
        "1h",
        "~",
        "null",
        "true",
        "# ",
        "? ",
        "é",
        "\t",
        "\r\n",
        "a.b",
        "x",
    ]);
    prop::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
}

/// A text of the corpus with a stretch of it replaced.
fn damaged() -> impl Strategy<Value = String> {
    (prop::sample::select(corpus()), any::<prop::sample::Index>(), 0..20_usize, ".{0,8}").prop_map(
        |(text, start, length, replacement)| {
            let letters: Vec<char> = text.chars().collect();
            let start = start.index(letters.len());
            let end = (start + length).min(letters.len());
            letters[..start]
                .iter()
                .copied()
                .chain(replacement.chars())
                .chain(letters[end..].iter().copied())
                .collect()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn any_text_is_read(text in ".{0,200}") {
        read(&text);
    }

    #[test]
    fn any_pieces_are_read(text in pieces()) {
        read(&text);
    }

    #[test]
    fn any_damaged_configuration_is_read(text in damaged()) {
        read(&text);
    }
}
