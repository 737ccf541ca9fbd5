//! The tests that docs/protocols.md names for its terms exist.

use std::{fs, path::Path};

#[test]
fn every_term_of_the_protocols_is_proved_by_a_test_that_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("docs/protocols.md")).unwrap();
    let rows = page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| term "));
    let mut proved = 0;
    for row in rows {
        let proof = row.trim_end_matches(" |").rsplit(" | ").next().unwrap();
        let links: Vec<&str> = proof.split(", ").filter(|link| !link.is_empty()).collect();
        assert!(!links.is_empty(), "no test: {row}");
        for link in links {
            let (name, file) = link.strip_prefix("[`").unwrap().split_once("`](../").unwrap();
            let file = file.strip_suffix(')').unwrap();
            let text = fs::read_to_string(root.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
            assert!(text.contains(&format!("fn {name}(")), "{file} has no test {name}");
            proved += 1;
        }
    }
    assert!(proved > 50, "{proved}");
}
