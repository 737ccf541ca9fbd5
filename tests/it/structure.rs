//! The structure of the sources and packages: no circles of files, names of errors, words of comments, what an adapter depends on.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

pub(crate) const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The Rust files below a folder of the repository, with their texts.
pub(crate) fn rust_files(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() && name != "target" && name != ".git" {
            files.extend(rust_files(&path));
        } else if name.ends_with(".rs") {
            let text = fs::read_to_string(&path).unwrap();
            files.push((path, text));
        }
    }
    files
}

/// The files of each crate, without tests, by their paths below `src`.
fn crates() -> Vec<(PathBuf, BTreeMap<PathBuf, String>)> {
    let within = |folder: &str| fs::read_dir(Path::new(ROOT).join(folder)).unwrap();
    let nested = ["crates", "adapters"].into_iter().flat_map(within).map(|entry| entry.unwrap().path());
    let top = ["", "build", "proto", "templates", "adapters", "xtask", "tools/stress"]
        .map(|folder| Path::new(ROOT).join(folder));
    let folders =
        top.into_iter().chain(nested).map(|folder| folder.join("src")).filter(|folder| folder.is_dir());
    let sources = |folder: &PathBuf| {
        let files = rust_files(folder).into_iter();
        let files = files.map(|(path, text)| (path.strip_prefix(folder).unwrap().to_owned(), text));
        files
            .filter(|(path, _)| !path.to_str().unwrap().contains("test"))
            .map(|(path, text)| (path, without_tests(&text)))
            .collect()
    };
    folders.map(|folder| (folder.clone(), sources(&folder))).collect()
}

/// A text up to its module of tests, without lines of comments.
fn without_tests(text: &str) -> String {
    let is_module = |line: &&str| line.starts_with("mod ") && line.ends_with("tests {");
    let code = text.lines().take_while(|line| !is_module(line));
    code.filter(|line| !line.trim_start().starts_with("//")).flat_map(|line| [line, "\n"]).collect()
}

/// What a file imports, and the paths that it writes out.
struct Module {
    /// The paths of imported items by their names, and whether they are exported again.
    imports: BTreeMap<String, (Vec<String>, bool)>,
    paths: Vec<Vec<String>>,
}

impl Module {
    fn parse(text: &str) -> Self {
        let (mut imports, mut paths) = (BTreeMap::new(), Vec::new());
        for statement in text.split(';') {
            let (code, import) = match statement.rsplit_once("use ") {
                Some((code, tree)) if tree.chars().all(is_of_tree) => (code, Some(tree)),
                _ => (statement, None),
            };
            if let Some(tree) = import {
                let is_public = code.lines().last().is_some_and(|line| line.trim_start().starts_with("pub"));
                for (name, path) in flatten(tree, &[]) {
                    imports.insert(name, (path, is_public));
                }
            }
            let words = code.split(|c: char| !c.is_alphanumeric() && c != '_' && c != ':');
            paths.extend(words.filter(|word| word.contains("::")).map(segments));
        }
        Self { imports, paths }
    }
}

fn is_of_tree(c: char) -> bool {
    c.is_alphanumeric() || c.is_whitespace() || "_:{},*".contains(c)
}

fn segments(path: &str) -> Vec<String> {
    path.split("::").map(str::trim).filter(|segment| !segment.is_empty()).map(str::to_owned).collect()
}

/// The names that a tree of imports introduces, with their paths.
fn flatten(tree: &str, prefix: &[String]) -> Vec<(String, Vec<String>)> {
    let Some((start, rest)) = tree.split_once('{') else {
        let (path, alias) = tree.split_once(" as ").map_or((tree, None), |(path, alias)| (path, Some(alias)));
        let mut path = [prefix, &segments(path)[..]].concat();
        path.pop_if(|last| last == "self");
        let name = alias.map(|alias| alias.trim().to_owned()).or_else(|| path.last().cloned());
        return name.map(|name| (name, path)).into_iter().collect();
    };
    let prefix = [prefix, &segments(start)[..]].concat();
    let (mut depth, mut names, mut begin) = (0, Vec::new(), 0);
    for (at, c) in rest.char_indices() {
        match c {
            '{' => depth += 1,
            ',' | '}' if depth == 0 => {
                names.extend(flatten(&rest[begin..at], &prefix));
                begin = at + 1;
            }
            '}' => depth -= 1,
            _ => {}
        }
    }
    names
}

/// The modules of a crate by their paths.
struct Modules(BTreeMap<Vec<String>, Module>);

impl Modules {
    fn parse(files: &BTreeMap<PathBuf, String>) -> Self {
        let module = |path: &Path| {
            let mut module: Vec<String> =
                path.with_extension("").iter().map(|part| part.to_str().unwrap().to_owned()).collect();
            module.pop_if(|last| ["mod", "lib", "main"].contains(&last.as_str()));
            module
        };
        Self(files.iter().map(|(path, text)| (module(path), Module::parse(text))).collect())
    }

    /// The module that declares the item of a path in another module; `None` if it is not one of this crate.
    fn declares(&self, module: &[String], path: &[String], depth: usize) -> Option<Vec<String>> {
        let (first, mut rest) = path.split_first().filter(|_| depth > 0)?;
        let mut at = match first.as_str() {
            "crate" => Vec::new(),
            "self" => module.to_vec(),
            "super" => module[..module.len().checked_sub(1)?].to_vec(),
            _ => [module, std::slice::from_ref(first)].concat(),
        };
        if !self.0.contains_key(&at) {
            let (import, _) = self.0[module].imports.get(first)?;
            return self.declares(module, &[import, rest].concat(), depth - 1);
        }
        while let Some((next, further)) = rest.split_first() {
            let inner = [&at[..], std::slice::from_ref(next)].concat();
            if next == "super" {
                at.pop();
            } else if self.0.contains_key(&inner) {
                at = inner;
            } else if let Some((import, _)) = self.0[&at].imports.get(next) {
                return self.declares(&at, &[import, further].concat(), depth - 1);
            } else {
                return Some(at);
            }
            rest = further;
        }
        None
    }

    /// The modules that each one uses, but for those that contain it: these two are one unit.
    fn uses(&self) -> BTreeMap<&[String], BTreeSet<Vec<String>>> {
        let uses = |(path, module): (&'_ Vec<String>, &Module)| {
            let imports =
                module.imports.values().filter(|(_, is_public)| !is_public).map(|(import, _)| import);
            let used = imports.chain(&module.paths).filter_map(|import| self.declares(path, import, 8));
            used.filter(|used| !path.starts_with(used)).collect()
        };
        self.0.iter().map(|entry| (&entry.0[..], uses(entry))).collect()
    }
}

#[test]
fn files_do_not_use_each_other_in_circles() {
    for (folder, files) in crates() {
        let modules = Modules::parse(&files);
        let mut uses = modules.uses();
        // What nothing uses, and what uses nothing, is in no circle.
        loop {
            let before = uses.len();
            let used: BTreeSet<Vec<String>> = uses.values().flatten().cloned().collect();
            uses.retain(|module, _| used.contains(*module));
            let remaining: BTreeSet<Vec<String>> = uses.keys().map(|module| module.to_vec()).collect();
            uses.retain(|_, used| !used.is_disjoint(&remaining));
            if uses.len() == before {
                break;
            }
        }
        assert!(uses.is_empty(), "{}: there is a circle among {uses:#?}", folder.display());
    }
}

#[test]
fn circles_are_found() {
    let file = |(path, text): (&str, &str)| (PathBuf::from(path), text.to_owned());
    let files = [
        ("lib.rs", "mod a;\nmod b;\npub use a::{A, inner::Inner};"),
        ("a/mod.rs", "pub mod inner;\nuse crate::b::B;\npub struct A;"),
        ("a/inner.rs", "use super::A;\npub struct Inner;"),
        ("b.rs", "fn b() -> crate::Inner { crate::A }\npub struct B;"),
    ];
    let modules = Modules::parse(&files.map(file).into());
    let uses = modules.uses();
    let used = |path: &str| uses[&segments(path)[..]].iter().map(|path| path.join("::")).collect::<Vec<_>>();
    assert_eq!((used("a"), used("b")), (vec!["b".to_owned()], vec!["a".to_owned(), "a::inner".to_owned()]));
    assert_eq!(used("a::inner"), [""; 0], "a module and its children are one unit");
}

#[test]
fn error_types_end_in_error() {
    let mut faults = Vec::new();
    for (folder, files) in crates() {
        for (path, text) in files {
            let file = folder.join(path);
            let is_name = |c: char| c.is_alphanumeric() || c == '_';
            let first_name = |text: &str| text.split(|c| !is_name(c)).next().unwrap_or_default().to_owned();
            let derived = text.split("thiserror::Error").skip(1).filter_map(|rest| {
                let keywords = [" struct ", " enum ", "\nstruct ", "\nenum "];
                let names = keywords.map(|keyword| Some(rest.find(keyword)? + keyword.len()));
                names.into_iter().flatten().min().map(|at| first_name(&rest[at..]))
            });
            let implemented =
                text.match_indices("Error for ").filter(|(at, _)| text[..*at].ends_with([' ', ':']));
            let implemented = implemented.map(|(at, found)| first_name(&text[at + found.len()..]));
            let others = derived
                .chain(implemented)
                .filter(|name| !name.trim_end_matches('s').trim_end_matches("Kind").ends_with("Error"));
            faults.extend(others.map(|name| format!("{}: {name} is an error type", file.display())));
            for result in text.split("Result<").skip(1) {
                if ["String", "&'static str"].contains(&error_of(result)) {
                    faults.push(format!(
                        "{}: an error is a text: Result<{}",
                        file.display(),
                        result.chars().take(40).collect::<String>()
                    ));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// The last argument of a `Result`, from behind its bracket.
fn error_of(result: &str) -> &str {
    let (mut depth, mut start) = (0, 0);
    for (at, c) in result.char_indices() {
        match c {
            '<' | '(' | '[' => depth += 1,
            // `anyhow::Result` has no argument for the error.
            '>' if depth == 0 => return if start > 0 { result[start..at].trim() } else { "" },
            '>' if result[..at].ends_with(['-', '=']) => {}
            '>' | ')' | ']' => depth -= 1,
            ',' if depth == 0 => start = at + 1,
            ';' | '{' => return "",
            _ => {}
        }
    }
    ""
}

#[test]
fn comments_are_plain() {
    const WORDS: [&str; 13] = [
        "told",
        "tell",
        "tells",
        "said",
        "heard",
        "kept",
        "left out",
        "so many",
        "that long",
        "now and then",
        "let go",
        "what there is",
        "who is",
    ];
    let has_word = |line: &str| {
        let words: Vec<&str> = line.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
        let text = format!(" {} ", words.join(" "));
        WORDS.iter().any(|word| text.contains(&format!(" {word} ")))
    };
    let files = rust_files(Path::new(ROOT));
    let found = files.iter().flat_map(|(path, text)| {
        let comments = text.lines().map(str::trim_start).filter(|line| line.starts_with("//"));
        comments.filter(|line| has_word(line)).map(move |line| format!("{}: {line}", path.display()))
    });
    assert_eq!(found.collect::<Vec<_>>(), Vec::<String>::new());
}

/// The packages that a program with this one contains.
fn packages(folder: &str) -> BTreeSet<String> {
    let tree = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "-e", "normal", "--prefix", "none", "--no-dedupe"])
        .current_dir(Path::new(ROOT).join(folder))
        .output()
        .unwrap();
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    let text = String::from_utf8(tree.stdout).unwrap();
    text.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

fn own(packages: &BTreeSet<String>) -> Vec<&str> {
    packages.iter().map(String::as_str).filter(|package| package.starts_with("mixer-adapter")).collect()
}

#[test]
fn an_adapter_depends_on_few_packages() {
    let packages = packages("adapters/denier");
    assert_eq!(own(&packages), ["mixer-adapter-core", "mixer-adapter-denier", "mixer-adapter-templates"]);
    assert!(packages.len() <= 45, "{}: {packages:?}", packages.len());
}

/// The engine takes configuration from whatever delivers it, and configuration opens no connections.
#[test]
fn the_engine_does_not_depend_on_streams_and_configuration_not_on_the_network() {
    let engine = packages("crates/engine");
    assert!(engine.contains("mixer-adapter-config") && !engine.contains("mixer-adapter-streams"));
    let config = packages("crates/config");
    assert_eq!(own(&config), ["mixer-adapter-config", "mixer-adapter-core"]);
    assert!(["hyper", "h2", "tonic"].iter().all(|package| !config.contains(*package)), "{config:?}");
}

/// Otherwise `cargo test` after `cargo run` compiles packages of the registry again, and `cargo run` after it.
#[test]
fn programs_and_tests_share_what_they_compile_and_the_program_alone_has_no_clock_of_tests() {
    let tree = |arguments: &[&str]| -> BTreeSet<String> {
        let tree = Command::new(env!("CARGO"))
            .args(["tree", "--offline", "--prefix", "none", "--format", "{p} {f}"])
            .args(arguments)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output()
            .unwrap();
        assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
        let lines = String::from_utf8(tree.stdout).unwrap();
        lines.lines().map(|line| line.trim_end_matches(" (*)").to_owned()).collect()
    };
    let (run, tests) = (tree(&["-e", "normal"]), tree(&["-e", "normal,dev"]));
    let again: Vec<_> = run.difference(&tests).collect();
    assert!(again.is_empty(), "add the features that tests turn on to tests/adapters/Cargo.toml: {again:?}");
    let everything = tree(&["-e", "normal,build,dev"]);
    let mut packages = BTreeMap::<_, Vec<_>>::new();
    for line in everything.iter().filter(|line| !line.is_empty()) {
        let (package, features) = line.rsplit_once(' ').unwrap();
        packages.entry(package).or_default().push(features);
    }
    packages.retain(|_, features| features.len() > 1);
    assert!(packages.is_empty(), "give build scripts the same features, in the same file: {packages:?}");
    assert!(run.iter().any(|line| line.starts_with("tokio v") && line.contains("test-util")));
    let program = tree(&["-e", "normal", "-p", "mixer-adapters"]);
    assert!(!program.iter().any(|line| line.contains("test-util")), "{program:?}");
}

/// Without a package, `cargo run` needs one program to choose.
#[test]
fn one_package_has_the_program_that_cargo_run_means() {
    let metadata = Command::new(env!("CARGO"))
        .args(["metadata", "--offline", "--no-deps", "--format-version", "1"])
        .current_dir(ROOT)
        .output()
        .unwrap();
    assert!(metadata.status.success(), "{}", String::from_utf8_lossy(&metadata.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&metadata.stdout).unwrap();
    let members = metadata["workspace_default_members"].as_array().unwrap();
    let packages = metadata["packages"].as_array().unwrap().iter();
    let programs =
        packages.filter(|package| members.contains(&package["id"])).map(|package| &package["default_run"]);
    let programs: Vec<_> = programs.filter_map(serde_json::Value::as_str).collect();
    assert_eq!(programs, ["mixer-adapter"]);
}
