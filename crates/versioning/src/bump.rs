//! The next version of a package: a copy under another name, without deprecated elements.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
};

use prost_reflect::{EnumDescriptor, FileDescriptor, MessageDescriptor};

use crate::{
    options::{History, STUBS},
    set::{ProtoSet, ProtoSetError},
    version::{PackageVersion, SemanticVersion, Stability, first},
};

/// A failure to copy a package.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BumpError {
    /// The protos of the folder are not valid.
    #[error(transparent)]
    Protos(#[from] ProtoSetError),
    /// No file has the package.
    #[error("no file in {} has the package {package}", folder.display())]
    UnknownPackage {
        /// The folder.
        folder: PathBuf,
        /// The package.
        package: String,
    },
    /// A package without a version has no next one.
    #[error("{0} does not end in a version, so it has no next one")]
    NoVersion(String),
    /// A file to write exists.
    #[error("{}: exists; remove the next version to copy the package again", .0.display())]
    Exists(PathBuf),
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}

/// The files of a next version.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NextVersion {
    /// The package, `shop.v2alpha`.
    pub package: String,
    /// Paths and texts.
    pub files: BTreeMap<PathBuf, String>,
    /// The deprecated fields and values that are not in it.
    pub omitted: BTreeSet<String>,
}

impl NextVersion {
    /// Writes the files.
    ///
    /// # Errors
    /// A file exists or cannot be written.
    pub fn write(&self) -> Result<(), BumpError> {
        if let Some(path) = self.files.keys().find(|path| path.exists()) {
            return Err(BumpError::Exists(path.clone()));
        }
        for (path, text) in &self.files {
            create(path, text).map_err(|source| BumpError::Io { path: path.clone(), source })?;
        }
        Ok(())
    }
}

/// Writes a file, and creates its folder.
fn create(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, text)
}

/// Copies a package of a folder to its next version.
///
/// The next version of `v1` is `v2alpha`, then `v2`. Deprecated fields and values are omitted, and their numbers and
/// names reserved. Files are named by the version in their path.
///
/// # Errors
/// The protos are not valid, no file has the package, or it has no version.
pub fn bump(folder: &Path, package: &str) -> Result<NextVersion, BumpError> {
    let set = ProtoSet::open(&[folder], &[])?;
    let files: Vec<FileDescriptor> = set.files().filter(|file| file.package_name() == package).collect();
    if files.is_empty() {
        return Err(BumpError::UnknownPackage { folder: folder.to_owned(), package: package.to_owned() });
    }
    let (version, (_, segment)) = PackageVersion::of(package)
        .zip(package.rsplit_once('.'))
        .ok_or_else(|| BumpError::NoVersion(package.to_owned()))?;
    let (major, next_segment) = match version.stability {
        Stability::Stable => (version.major + 1, format!("v{}alpha", version.major + 1)),
        Stability::Alpha | Stability::Beta => (version.major, format!("v{}", version.major)),
    };
    let renames = Renames {
        package: package.to_owned(),
        next: format!("{}.{next_segment}", version.api),
        segment: segment.to_owned(),
        next_segment,
        version: first(major),
        files: BTreeMap::new(),
    };
    let names = files.iter().map(|file| (file.name().to_owned(), renames.path(file.name())));
    let renames = Renames { files: names.collect(), ..renames };
    let mut next =
        NextVersion { package: renames.next.clone(), files: BTreeMap::new(), omitted: BTreeSet::new() };
    for file in files {
        let path = folder.join(file.name());
        let text =
            fs::read_to_string(&path).map_err(|source| BumpError::Io { path: path.clone(), source })?;
        let mut edits = Edits::of(&file, &text);
        file.messages().for_each(|message| edits.message(&message));
        file.enums().for_each(|of| edits.enumeration(&of));
        next.omitted.extend(std::mem::take(&mut edits.omitted));
        next.files.insert(folder.join(renames.path(file.name())), renames.text(&edits.apply()));
    }
    Ok(next)
}

/// The names that differ in the next version.
struct Renames {
    package: String,
    next: String,
    segment: String,
    next_segment: String,
    version: SemanticVersion,
    files: BTreeMap<String, String>,
}

impl Renames {
    /// Returns the path of a file in the next version.
    fn path(&self, name: &str) -> String {
        let (stem, file) = (format!("{}.proto", self.segment), format!("{}.proto", self.next_segment));
        let parts: Vec<&str> = name.split('/').collect();
        let renamed: Vec<&str> = parts
            .iter()
            .map(|part| match *part {
                part if part == self.segment => &*self.next_segment,
                part if part == stem => &*file,
                part => part,
            })
            .collect();
        if renamed != parts {
            return renamed.join("/");
        }
        match name.rsplit_once('/') {
            Some((folder, file)) => format!("{folder}/{}/{file}", self.next_segment),
            None => format!("{}/{name}", self.next_segment),
        }
    }

    fn text(&self, text: &str) -> String {
        let lines = text.split_inclusive('\n').map(|line| {
            let option = line.trim_start().strip_prefix("option ").unwrap_or_default();
            if STUBS.iter().any(|stub| option.starts_with(stub)) {
                return replace(line, &self.segment, &self.next_segment, |_, right| !is_word(right));
            }
            let line = replace(line, &self.package, &self.next, |left, right| {
                let mut left = left.chars().rev();
                let first = left.next();
                let qualified = first == Some('.') && left.next().is_some_and(is_word);
                !qualified && !first.is_some_and(is_word) && !is_word(right)
            });
            // The versions of REST paths.
            line.replace(&format!("\"/{}/", self.segment), &format!("\"/{}/", self.next_segment))
        });
        let mut text: String = lines.collect();
        for (from, to) in &self.files {
            text = text.replace(&format!("\"{from}\""), &format!("\"{to}\""));
        }
        self.with_version(text)
    }

    fn with_version(&self, text: String) -> String {
        const OPTION: &str = "(mixer_adapter.versioning.v1.file).version";
        let Some(start) = text.find(OPTION) else { return text };
        let rest = &text[start + OPTION.len()..];
        let Some((before, rest)) = rest.split_once('"') else { return text };
        let Some((_, after)) = rest.split_once('"') else { return text };
        format!("{}{OPTION}{before}\"{}\"{after}", &text[..start], self.version)
    }
}

/// Replaces a text where its left and right context fit.
fn replace(text: &str, from: &str, to: &str, fits: impl Fn(&str, char) -> bool) -> String {
    let mut replaced = String::with_capacity(text.len());
    let mut rest = 0;
    for (at, _) in text.match_indices(from) {
        let right = text[at + from.len()..].chars().next().unwrap_or(' ');
        if at >= rest && fits(&text[..at], right) {
            replaced.push_str(&text[rest..at]);
            replaced.push_str(to);
            rest = at + from.len();
        }
    }
    replaced.push_str(&text[rest..]);
    replaced
}

fn is_word(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

/// The removals from a file and the insertions, by offsets in its text.
struct Edits<'a> {
    text: &'a str,
    /// The byte at which each line begins.
    lines: Vec<usize>,
    spans: BTreeMap<Vec<i32>, (usize, usize)>,
    /// Ranges and their replacements.
    edits: BTreeMap<usize, (usize, String)>,
    omitted: BTreeSet<String>,
}

impl<'a> Edits<'a> {
    fn of(file: &FileDescriptor, text: &'a str) -> Self {
        let starts = text.match_indices('\n').map(|(at, _)| at + 1);
        let lines: Vec<usize> = std::iter::once(0).chain(starts).collect();
        let mut edits =
            Self { text, lines, spans: BTreeMap::new(), edits: BTreeMap::new(), omitted: BTreeSet::new() };
        let info = file.file_descriptor_proto().source_code_info.iter();
        for location in info.flat_map(|info| &info.location) {
            let span = match *location.span {
                [line, from, to] => edits.place(line, from).zip(edits.place(line, to)),
                [line, from, last, to] => edits.place(line, from).zip(edits.place(last, to)),
                _ => None,
            };
            if let Some(span) = span {
                edits.spans.insert(location.path.clone(), span);
            }
        }
        edits
    }

    /// The byte of a line and column, which counts characters.
    fn place(&self, line: i32, column: i32) -> Option<usize> {
        let start = *self.lines.get(usize::try_from(line).ok()?)?;
        let column = usize::try_from(column).ok()?;
        let at = self.text[start..].char_indices().nth(column).map_or(self.text.len(), |(at, _)| start + at);
        Some(at)
    }

    fn message(&mut self, message: &MessageDescriptor) {
        if message.is_map_entry() {
            return;
        }
        let mut reserved = String::new();
        for oneof in message.oneofs().filter(|oneof| !oneof.is_synthetic()) {
            if oneof.fields().all(|field| History::of(&field.options()).deprecated) {
                self.remove(oneof.path());
            }
        }
        for field in message.fields().filter(|field| History::of(&field.options()).deprecated) {
            self.remove(field.path());
            self.omitted.insert(field.full_name().to_owned());
            reserved += &format!(" reserved {}; reserved \"{}\";", field.number(), field.name());
        }
        self.insert(message.path(), reserved);
        message.child_messages().for_each(|child| self.message(&child));
        message.child_enums().for_each(|child| self.enumeration(&child));
    }

    fn enumeration(&mut self, of: &EnumDescriptor) {
        let mut reserved = String::new();
        let default = of.default_value();
        let deprecated = of.values().filter(|value| History::of(&value.options()).deprecated);
        for value in deprecated.filter(|value| *value != default) {
            self.remove(value.path());
            self.omitted.insert(format!("{}.{}", of.full_name(), value.name()));
            reserved += &format!(" reserved {}; reserved \"{}\";", value.number(), value.name());
        }
        self.insert(of.path(), reserved);
    }

    /// Removes an element with the comments directly above and behind it.
    fn remove(&mut self, path: &[i32]) {
        let Some((mut from, mut to)) = self.spans.get(path).copied() else { return };
        let line = self.lines.partition_point(|start| *start <= from) - 1;
        if self.text[self.lines[line]..from].trim().is_empty() {
            let above = self.lines[..line].iter().enumerate().rev();
            let comments = above.take_while(|(index, start)| {
                self.text[**start..self.lines[index + 1]].trim_start().starts_with("//")
            });
            from = comments.last().map_or(self.lines[line], |(_, start)| *start);
        }
        let rest = self.text[to..].split('\n').next().unwrap_or_default();
        if rest.trim().is_empty() || rest.trim_start().starts_with("//") {
            to += rest.len();
            if self.text[..from].ends_with('\n') && self.text[to..].starts_with('\n') {
                to += 1;
            }
        }
        self.edits.insert(from, (to, String::new()));
    }

    /// Inserts statements at the beginning of a message's or enum's body.
    fn insert(&mut self, path: &[i32], statements: String) {
        let span = self.spans.get(path).filter(|_| !statements.is_empty());
        let Some((from, to)) = span.copied() else { return };
        if let Some(brace) = self.text[from..to].find('{') {
            let at = from + brace + 1;
            self.edits.insert(at, (at, statements));
        }
    }

    fn apply(self) -> String {
        let mut edited = String::with_capacity(self.text.len());
        let mut rest = 0;
        for (from, (to, text)) in self.edits {
            // Within a oneof that is removed as a whole.
            if from < rest {
                continue;
            }
            edited.push_str(&self.text[rest..from]);
            edited.push_str(&text);
            rest = to;
        }
        edited.push_str(&self.text[rest..]);
        edited
    }
}
