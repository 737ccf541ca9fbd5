//! Links in the documentation and citations of pages in comments lead to files and headings of this repository.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Component, Path, PathBuf},
};

const EXTENSIONS: [&str; 6] = ["rs", "md", "toml", "proto", "yaml", "txt"];

/// The text files of the repository, by their paths from its root.
struct Repository {
    root: PathBuf,
    files: BTreeMap<PathBuf, String>,
}

/// A link or citation: where it is and what it names.
struct Link<'a> {
    file: &'a Path,
    line: usize,
    path: &'a str,
    anchor: Option<&'a str>,
}

impl Repository {
    fn read() -> Self {
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        let mut files = BTreeMap::new();
        read_files(&root, &root, &mut files);
        Self { root, files }
    }

    fn pages(&self) -> impl Iterator<Item = (&Path, &str)> {
        self.all().filter(|(path, _)| is_page(path))
    }

    fn all(&self) -> impl Iterator<Item = (&Path, &str)> {
        self.files.iter().map(|(path, text)| (path.as_path(), text.as_str()))
    }

    /// What is wrong with a link whose path is looked up in these folders, in this order.
    fn fault<'p>(&self, link: &Link<'_>, folders: impl Iterator<Item = &'p Path>) -> Option<String> {
        let found = folders
            .filter_map(|folder| normal(&folder.join(link.path)))
            .find(|path| self.root.join(path).exists());
        let reason = match (found, link.anchor) {
            (None, _) => "there is no such file".to_owned(),
            (Some(_), None) => return None,
            (Some(path), Some(anchor)) => {
                let page = self.files.get(&path).filter(|_| is_page(&path));
                if page.is_some_and(|text| anchors(text).contains(anchor)) {
                    return None;
                }
                format!("{} has no heading with the anchor #{anchor}", path.display())
            }
        };
        let anchor = link.anchor.map(|anchor| format!("#{anchor}")).unwrap_or_default();
        Some(format!("{}:{}: {}{anchor}: {reason}", link.file.display(), link.line, link.path))
    }
}

fn read_files(root: &Path, folder: &Path, files: &mut BTreeMap<PathBuf, String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() {
            if name != "target" && name != ".git" {
                read_files(root, &path, files);
            }
        } else if EXTENSIONS.iter().any(|extension| has_extension(&path, extension)) {
            let text = String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned();
            files.insert(path.strip_prefix(root).unwrap().to_owned(), text);
        }
    }
}

fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|found| found == extension)
}

fn is_page(path: &Path) -> bool {
    has_extension(path, "md")
}

/// A path without `.` and `..`, unless it leaves the repository.
fn normal(path: &Path) -> Option<PathBuf> {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => normal.pop().then_some(())?,
            other => normal.push(other),
        }
    }
    Some(normal)
}

/// The lines of a page with their numbers, without blocks of code.
fn lines_of_prose(page: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    page.lines().enumerate().filter_map(move |(index, line)| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        (!in_code && !is_fence).then_some((index + 1, line))
    })
}

/// The anchors of a page's headings, as GitHub makes them: lower case, only letters, digits, `-` and `_`, spaces as `-`,
/// and a number behind those that repeat.
fn anchors(page: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for (_, line) in lines_of_prose(page) {
        let Some(title) = line.strip_prefix('#').map(|rest| rest.trim_start_matches('#')) else { continue };
        let Some(title) = title.strip_prefix(' ') else { continue };
        let anchor: String = replace_links(title, |text| text)
            .trim()
            .to_lowercase()
            .chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
            .map(|c| if c == ' ' { '-' } else { c })
            .collect();
        let repeated = (1..).map(|number| format!("{anchor}-{number}"));
        let free = [anchor.clone()].into_iter().chain(repeated).find(|anchor| !anchors.contains(anchor));
        anchors.extend(free);
    }
    anchors
}

/// A line of Markdown in which something of each link's text takes the place of the link.
fn replace_links(line: &str, replacement: impl Fn(&str) -> &str) -> String {
    let mut replaced = String::new();
    let mut rest = line;
    while let Some((before, behind)) = rest.split_once("](") {
        let (before, text) = before.rsplit_once('[').unwrap_or((before, ""));
        replaced.extend([before, replacement(text)]);
        rest = behind.split_once(')').map_or("", |(_, behind)| behind);
    }
    replaced + rest
}

/// The targets of links in a line of Markdown, apart from those in code.
fn targets(line: &str) -> Vec<&str> {
    let mut targets = Vec::new();
    let mut rest = line;
    while let Some(start) = rest.find(['`', ']']) {
        let (mark, behind) = rest[start..].split_at(1);
        rest = behind;
        if mark == "`" {
            rest = rest.split_once('`').map_or("", |(_, behind)| behind);
        } else if let Some((target, behind)) =
            rest.strip_prefix('(').and_then(|target| target.split_once(')'))
        {
            targets.push(target);
            rest = behind;
        }
    }
    targets
}

/// The names of Markdown files in a line, with their anchors, apart from those in URLs.
fn citations(line: &str) -> Vec<(&str, Option<&str>)> {
    let is_path = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '/' | '-' | '_');
    let mut citations = Vec::new();
    for word in line.split_whitespace().filter(|word| !word.contains("://")) {
        for (at, _) in word.match_indices(".md") {
            let end = at + ".md".len();
            let start = word[..at].rfind(|c| !is_path(c)).map_or(0, |last| last + 1);
            let is_longer = word[end..].starts_with(|c: char| is_path(c) && !matches!(c, '.' | '/'));
            if start == at || is_longer {
                continue;
            }
            let anchor = word[end..].strip_prefix('#').map(|rest| {
                let length = rest.find(|c: char| !c.is_alphanumeric() && !matches!(c, '-' | '_'));
                &rest[..length.unwrap_or(rest.len())]
            });
            // Cargo.toml writes paths from the root of the package with a slash.
            citations.push((word[start..end].trim_start_matches('/'), anchor));
        }
    }
    citations
}

fn report(faults: &[String]) {
    assert!(faults.is_empty(), "{} links lead nowhere:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn links_between_pages_lead_to_files_and_headings() {
    let repository = Repository::read();
    let mut faults = Vec::new();
    for (file, text) in repository.pages() {
        let folder = file.parent().unwrap();
        for (line, content) in lines_of_prose(text) {
            // Targets with `::` are items, which rustdoc resolves: a page can be the documentation of a crate.
            let is_elsewhere = |target: &str| target.contains("://") || target.contains("::");
            for target in targets(content).into_iter().filter(|target| !is_elsewhere(target)) {
                let (path, anchor) =
                    target.split_once('#').map_or((target, None), |(path, anchor)| (path, Some(anchor)));
                let path = if path.is_empty() { file.file_name().unwrap().to_str().unwrap() } else { path };
                faults.extend(repository.fault(&Link { file, line, path, anchor }, [folder].into_iter()));
            }
        }
    }
    report(&faults);
}

/// The folders of the root that no other project has: `src`, `tests` and `docs` may be an author's or upstream.
const FOLDERS: [&str; 11] = [
    "adapters",
    "benches",
    "build",
    "crates",
    "deploy",
    "examples",
    "fuzz",
    "proto",
    "templates",
    "tools",
    "xtask",
];

/// The paths of this repository in the code spans of a line: without placeholders, patterns and what builds make.
fn paths_in_code(line: &str) -> impl Iterator<Item = &str> {
    let spans = line.split('`').skip(1).step_by(2);
    spans.filter(|span| {
        let is_path =
            |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '/' | '-' | '_');
        let (first, rest) = span.split_once('/').unwrap_or((span, ""));
        FOLDERS.contains(&first) && rest.contains(['/', '.']) && span.chars().all(is_path)
    })
}

#[test]
fn paths_in_code_are_in_the_repository() {
    let repository = Repository::read();
    let mut faults = Vec::new();
    for (file, text) in repository.pages() {
        for (line, content) in lines_of_prose(text) {
            for path in paths_in_code(content) {
                let link = Link { file, line, path: path.trim_end_matches('/'), anchor: None };
                faults.extend(repository.fault(&link, file.ancestors().skip(1)));
            }
        }
    }
    report(&faults);
}

/// A page is cited by its path from the root, or from the folder of the file that cites it or one above.
#[test]
fn pages_that_text_cites_are_in_the_repository() {
    let repository = Repository::read();
    let mut faults = Vec::new();
    for (file, text) in repository.all() {
        for (index, content) in text.lines().enumerate() {
            let content = if is_page(file) { replace_links(content, |_| "") } else { content.to_owned() };
            for (path, anchor) in citations(&content) {
                // Placeholders, as in `adapters/NAME/` and in templates of pages.
                if path.split('/').any(|folder| folder == "NAME") || content.contains("{{ ") {
                    continue;
                }
                let link = Link { file, line: index + 1, path, anchor };
                faults.extend(repository.fault(&link, file.ancestors().skip(1)));
            }
        }
    }
    report(&faults);
}

/// The rule is that of GitHub's gem html-pipeline 2.14, `lib/html/pipeline/toc_filter.rb`.
#[test]
fn anchors_are_those_that_github_makes() {
    let page = "# The field `name`\n## Istio's test cases\n### Rule 5: what a missing resource means\n\
                ## [TLS](x.rs) & tokens\n```sh\n# a comment\n```\n## adapter_config\n## Buckets\n## Buckets\n#!/bin/sh\n";
    let expected = [
        "adapter_config",
        "buckets",
        "buckets-1",
        "istios-test-cases",
        "rule-5-what-a-missing-resource-means",
        "the-field-name",
        "tls--tokens",
    ];
    assert_eq!(anchors(page), expected.map(str::to_owned).into());
}
