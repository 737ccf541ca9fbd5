//! YAML and JSON text as documents whose every field knows its line.

use std::{fmt, ops::Range};

use serde::{
    Deserialize, Deserializer,
    de::{Error as _, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Number, Value as Json};
use serde_saphyr::{DefaultMessageFormatter, MessageFormatter as _, Options, Spanned};

use crate::{
    lines::{Lines, step},
    validation_error::Position,
};

/// A stack for documents nested as deep as they may be: unoptimized, a level takes some 40 KiB.
pub(super) const STACK: usize = 8 << 20;

/// One document of a file.
pub(super) struct Document {
    pub json: Json,
    pub lines: Lines,
    pub booleans: Vec<Boolean>,
}

/// A word without quotes that YAML 1.1, and with it a real Mixer, reads as a boolean: `n`, `y`, `on`, `off`, `yes`, `no`.
pub(super) struct Boolean {
    /// The path of the field.
    pub field: String,
    pub line: u32,
    /// The word as it is written.
    pub word: String,
    /// The boolean that it is read as.
    pub truth: bool,
    /// Whether it is the field's name and not its value.
    pub is_key: bool,
}

/// The reason why a document cannot be read.
#[derive(Debug)]
pub(super) struct DocumentError {
    pub position: Position,
    pub reason: String,
}

/// Splits a text into its documents, at lines that begin with `---`, which YAML does not allow within a document. Each
/// has the number of its first line, and its place; documents without content are skipped. A fault of one document does
/// not affect the others.
pub(super) fn split(text: &str) -> impl Iterator<Item = (u32, Range<usize>)> {
    let starts = text.split_inclusive('\n').scan((0, 0), |(line, offset), content| {
        let start = (*line, *offset, content);
        *line += 1;
        *offset += content.len();
        Some(start)
    });
    let mut starts: Vec<(u32, usize)> = starts
        .filter(|(line, _, content)| *line == 0 || is_separator(content))
        .map(|(line, offset, _)| (line + 1, offset))
        .collect();
    starts.push((0, text.len()));
    let documents: Vec<_> = starts.windows(2).map(|bounds| (bounds[0].0, bounds[0].1..bounds[1].1)).collect();
    documents.into_iter().filter(move |(_, place)| text[place.clone()].lines().any(has_content))
}

fn is_separator(line: &str) -> bool {
    line.strip_prefix("---").is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace))
}

fn has_content(line: &str) -> bool {
    let line = if is_separator(line) { &line[3..] } else { line };
    let line = line.trim();
    !(line.is_empty() || line.starts_with(['#', '%']) || line == "...")
}

impl Document {
    /// Reads one document that begins at that line of its file. Size and aliases are bounded, and depth is limited to
    /// 64; the reader recurses, for which [`STACK`] is large enough.
    pub(super) fn read(text: &str, first_line: u32) -> Result<Self, DocumentError> {
        let last_line = first_line.saturating_add(u32::try_from(text.lines().count()).unwrap_or(u32::MAX));
        let place = Place { first_line, last_line: last_line.saturating_sub(1).max(first_line) };
        let options: Options = serde_saphyr::options! {
            legacy_octal_numbers: true,
            with_snippet: false,
            // A list of all resources of a cluster may be long, but aliases are for people.
            budget: serde_saphyr::budget! { max_nodes: 2_000_000, max_events: 4_000_000 },
            alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: 10_000 },
        };
        let tree = serde_saphyr::from_str_with_options::<Spanned<Tree>>(text, options).map_err(|error| {
            let (line, column) =
                error.location().map_or((1, 0), |location| (location.line(), location.column()));
            DocumentError {
                position: place.position(line, column),
                reason: reason(error.without_snippet(), column),
            }
        })?;
        let mut reader = Reader { text, place, path: String::new(), booleans: Vec::new() };
        let (json, lines) = reader.value(tree);
        Ok(Self { json, lines, booleans: reader.booleans })
    }
}

/// Describes the fault of a text at that column.
fn reason(error: &serde_saphyr::Error, column: u64) -> String {
    match error {
        serde_saphyr::Error::DuplicateMappingKey { key: Some(key), .. } => {
            let of_resource = column == 1 && ["apiVersion", "kind", "metadata"].contains(&key.as_str());
            let hint = if of_resource { "; is a `---` missing between two documents?" } else { "" };
            format!("the key {key} is given twice{hint}")
        }
        other => {
            let reason = DefaultMessageFormatter.format_message(other);
            // The parser does not suggest corrections.
            let hint = if reason.contains("tab") { "; indent with spaces" } else { "" };
            format!("{reason}{hint}")
        }
    }
}

/// The lines of a document in its file.
#[derive(Clone, Copy)]
struct Place {
    first_line: u32,
    last_line: u32,
}

impl Place {
    /// The line of the file. The end of the text is on its last line, and YAML has line breaks that editors do not show.
    fn position(self, line: u64, column: u64) -> Position {
        Position { line: self.line(line), column: u32::try_from(column).unwrap_or_default() }
    }

    fn line(self, in_document: u64) -> u32 {
        let offset = u32::try_from(in_document).unwrap_or(u32::MAX).saturating_sub(1);
        self.first_line.saturating_add(offset).min(self.last_line)
    }
}

struct Reader<'a> {
    text: &'a str,
    place: Place,
    path: String,
    booleans: Vec<Boolean>,
}

impl Reader<'_> {
    fn value(&mut self, tree: Spanned<Tree>) -> (Json, Lines) {
        let position = self.place.position(tree.referenced.line(), tree.referenced.column());
        let line = position.line;
        let written = self.written(tree.defined);
        match tree.value {
            Tree::Scalar(json) => {
                let word = written.filter(|word| yaml11_boolean(word).is_some());
                if let (Json::Bool(truth), Some(word)) = (&json, word) {
                    let (field, word, truth) = (self.path.clone(), word.to_owned(), *truth);
                    self.booleans.push(Boolean { field, line, word, truth, is_key: false });
                }
                (json, Lines::leaf(position))
            }
            Tree::List(items) => {
                let items = items.into_iter().enumerate();
                let (values, children): (Vec<_>, Vec<_>) =
                    items.map(|(index, item)| self.under(&format!("[{index}]"), item)).unzip();
                (Json::Array(values), Lines::new(position, children.into()))
            }
            Tree::Map(entries) => {
                let mut fields: Vec<_> =
                    entries.into_iter().map(|(key, item)| self.field(key, item)).collect();
                // The iteration order of the object, whatever its map is.
                fields.sort_by(|(a, ..), (b, ..)| a.cmp(b));
                let mut map = Map::with_capacity(fields.len());
                let mut children = Vec::with_capacity(fields.len());
                for (name, value, lines) in fields {
                    map.insert(name, value);
                    children.push(lines);
                }
                (Json::Object(map), Lines::new(position, children.into()))
            }
        }
    }

    fn field(&mut self, key: Spanned<String>, item: Spanned<Tree>) -> (String, Json, Lines) {
        let position = self.place.position(key.referenced.line(), key.referenced.column());
        let line = position.line;
        let step = step(&key.value);
        let truth = self.written(key.defined).filter(|word| *word == key.value).and_then(yaml11_boolean);
        let (value, lines) = self.under(&step, item);
        if let Some(truth) = truth {
            let field = format!("{}{step}", self.path).trim_start_matches('.').to_owned();
            self.booleans.push(Boolean { field, line, word: key.value.clone(), truth, is_key: true });
        }
        (key.value, value, Lines::new(position, lines.children))
    }

    fn under(&mut self, step: &str, item: Spanned<Tree>) -> (Json, Lines) {
        let length = self.path.len();
        self.path.push_str(if length == 0 { step.trim_start_matches('.') } else { step });
        let read = self.value(item);
        self.path.truncate(length);
        read
    }

    /// Returns the scalar as it is written, with its quotes.
    fn written(&self, at: serde_saphyr::Location) -> Option<&str> {
        let start = usize::try_from(at.span().byte_offset()?).ok()?;
        let length = usize::try_from(at.span().byte_len()?).ok()?;
        self.text.get(start..start.checked_add(length)?)
    }
}

/// Returns the boolean that YAML 1.1 reads in a word that is text in YAML 1.2.
fn yaml11_boolean(word: &str) -> Option<bool> {
    match word {
        "y" | "Y" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => Some(true),
        "n" | "N" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => Some(false),
        _ => None,
    }
}

enum Tree {
    Scalar(Json),
    List(Vec<Spanned<Tree>>),
    Map(Vec<(Spanned<String>, Spanned<Tree>)>),
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TreeVisitor)
    }
}

struct TreeVisitor;

impl<'de> Visitor<'de> for TreeVisitor {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Tree, E> {
        Ok(Tree::Scalar(Json::Null))
    }

    fn visit_bool<E>(self, truth: bool) -> Result<Tree, E> {
        Ok(Tree::Scalar(truth.into()))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Tree, E> {
        Ok(Tree::Scalar(number.into()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Tree, E> {
        Ok(Tree::Scalar(number.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<Tree, E> {
        let number = Number::from_f64(number).ok_or_else(|| E::custom("the number is not finite"))?;
        Ok(Tree::Scalar(Json::Number(number)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Tree, E> {
        Ok(Tree::Scalar(text.into()))
    }

    fn visit_string<E>(self, text: String) -> Result<Tree, E> {
        Ok(Tree::Scalar(text.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Tree, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Tree::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Tree, A::Error> {
        let mut map = Vec::new();
        while let Some(key) = entries.next_key::<Spanned<String>>()? {
            if key.value.len() > MAX_KEY {
                return Err(A::Error::custom("a field's name is too long"));
            }
            map.push((key, entries.next_value()?));
        }
        Ok(Tree::Map(map))
    }
}

const MAX_KEY: usize = 4096;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(text: &str) -> Document {
        Document::read(text, 1).unwrap()
    }

    #[test]
    fn documents_are_split_at_separators_and_keep_their_line_numbers() {
        let text = "# a comment\n---\na: |\n  text\n  --- no separator\n---\n---\n%YAML 1.1\n--- # b\nb: 1\r\n---\r\nc: 1";
        let parts: Vec<_> =
            split(text).map(|(line, place)| (line, text[place].trim_start_matches("---").trim())).collect();
        let first = "a: |\n  text\n  --- no separator";
        assert_eq!(parts, [(2, first), (9, "# b\nb: 1"), (11, "c: 1")]);
    }

    #[test]
    fn fields_are_found_at_the_line_of_their_name() {
        let text =
            "---\nspec:\n  actions:\n  - handler: h1\n    instances:\n    - i1\n  params: {a.b: {c: 1}}\n";
        let document = Document::read(text, 10).unwrap();
        let line = |path| document.lines.of_field(&document.json, path).line;
        assert_eq!(line("spec"), 11);
        assert_eq!(line("spec.actions[0].handler"), 13);
        assert_eq!(line("spec.actions[0].instances[0]"), 15);
        assert_eq!(line("spec.params[\"a.b\"].c"), 16);
        assert_eq!(line("spec.actions[0].nope.deeper"), 13, "the nearest that is there");
    }

    #[test]
    fn fields_are_found_in_snake_and_in_camel_case() {
        let document = read("attributes:\n  source.ip:\n    valueType: IP_ADDRESS\n");
        assert_eq!(document.lines.of_field(&document.json, "attributes[\"source.ip\"].value_type").line, 3);
    }

    #[test]
    fn yaml_1_1_booleans_are_read_as_such_and_reported_with_the_word() {
        let document = read("a: y\nb: 'y'\non: [no, \"off\", true]\nc: {n: text}\nd: !!str y\n");
        assert_eq!(
            document.json,
            json!({"a": true, "b": "y", "on": [false, "off", true], "c": {"n": "text"}, "d": "y"})
        );
        let found: Vec<_> =
            document.booleans.iter().map(|b| (b.field.as_str(), b.line, b.word.as_str(), b.is_key)).collect();
        assert_eq!(
            found,
            [("a", 1, "y", false), ("on[0]", 3, "no", false), ("on", 3, "on", true), ("c.n", 4, "n", true)]
        );
    }

    #[test]
    fn scalars_are_read_as_mixer_does() {
        let document = read(
            "i: 7\nneg: -1\nf: 1.5\nnull1: ~\nnull2:\ntext: 1h\nquoted: \"7\"\noctal: 0777\nbig: 18446744073709551615\n",
        );
        let expected = json!({
            "i": 7, "neg": -1, "f": 1.5, "null1": null, "null2": null, "text": "1h", "quoted": "7", "octal": 511,
            "big": 18_446_744_073_709_551_615_u64,
        });
        assert_eq!(document.json, expected);
    }

    #[test]
    fn json_is_read_by_the_same_rules() {
        let document = read("{\n\t\"a\": [1, \"\\u00e9\\ud83d\\ude00\\/\"],\n\t\"b\": {\"c\": null}\n}\n");
        assert_eq!(document.json, json!({"a": [1, "é😀/"], "b": {"c": null}}));
        assert_eq!(document.lines.of_field(&document.json, "b.c").line, 3);
    }

    #[test]
    fn an_unreadable_document_says_at_which_line() {
        let cases = [("a: 1\na: 2\n", 2), ("a: [1\nb: 2\n", 2), ("a: *nowhere\n", 1), ("a: .inf\n", 1)];
        for (text, line) in cases {
            let error = Document::read(text, 1).map(|document| document.json).unwrap_err();
            assert_eq!(error.position.line, line, "{text}: {}", error.reason);
        }
    }
}
