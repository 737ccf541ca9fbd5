//! Faults of configurations with their places in the files, for people and for programs.

use std::{
    collections::HashMap,
    fmt::{self, Write as _},
    fs,
    path::Path,
    sync::Arc,
};

use anstyle::Style;
use serde::Serialize;
use serde_json::{Value as Json, json};
use serde_saphyr::{DefaultMessageFormatter, MessageFormatter as _};

use super::style;
use mixer_adapter_config::{Excerpt, Severity, Topic, ValidationError};

/// The number of lines after a field's name in which the part at fault is looked for.
const MAX_LINES: usize = 200;

/// The texts with faults. A file is read when one of its lines is shown.
#[derive(Default)]
pub(super) struct Texts {
    known: HashMap<Arc<str>, Vec<String>>,
}

/// A fault and its place.
#[derive(Serialize)]
pub(super) struct LocatedFault<'a> {
    severity: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<usize>,
    /// From 1, in characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    column: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource: Option<String>,
    #[serde(skip_serializing_if = "str::is_empty")]
    field: &'a str,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    help: Option<&'a str>,
    #[serde(skip)]
    topic: Topic,
    /// The line of the file, and the number of characters that are marked in it.
    #[serde(skip)]
    marked: Option<(&'a str, usize)>,
    /// The text of a resource that is not in a file.
    #[serde(skip)]
    excerpt: Option<&'a Excerpt>,
}

impl Texts {
    /// Adds a text that is not a file.
    pub(super) fn add(&mut self, source: &str, text: &str) {
        self.known.insert(source.into(), text.lines().map(str::to_owned).collect());
    }

    /// Returns the faults with their places.
    pub(super) fn locate<'a>(
        &'a mut self,
        faults: impl IntoIterator<Item = &'a ValidationError> + Clone,
    ) -> Vec<LocatedFault<'a>> {
        let origins = faults.clone().into_iter().filter_map(|fault| fault.origin.as_ref());
        for origin in origins.filter(|origin| origin.line > 0) {
            // A file that has gone is shown without its lines.
            self.known.entry(origin.source.clone()).or_insert_with(|| {
                fs::read_to_string(&*origin.source).unwrap_or_default().lines().map(str::to_owned).collect()
            });
        }
        let known = &self.known;
        faults.into_iter().map(|fault| located(fault, known)).collect()
    }
}

/// Renders the reason that a text cannot be read as YAML, like a fault of a configuration.
pub(super) fn of_yaml(source: &str, text: &str, error: &serde_saphyr::Error) -> String {
    let reason = DefaultMessageFormatter.format_message(error.without_snippet());
    let (line, column) = error.location().map_or((0, 0), |location| (location.line(), location.column()));
    let mut fault = ValidationError::error(&*reason).in_file(Path::new(source));
    if let Some(origin) = &mut fault.origin {
        (origin.line, origin.column) = (line as u32, column as u32);
    }
    let mut texts = Texts::default();
    texts.add(source, text);
    texts.locate([&fault]).iter().map(ToString::to_string).collect()
}

fn located<'a>(fault: &'a ValidationError, texts: &'a HashMap<Arc<str>, Vec<String>>) -> LocatedFault<'a> {
    let origin = fault.origin.as_ref();
    let lines = origin.and_then(|origin| texts.get(&origin.source)).map(Vec::as_slice).unwrap_or_default();
    let excerpt = fault.excerpt.as_deref();
    let place = origin.filter(|origin| origin.line > 0).map(|origin| {
        let start = (origin.line as usize, origin.column.max(1) as usize);
        let found = excerpt.and_then(|excerpt| find(excerpt, start, lines));
        found.unwrap_or_else(|| (start.0, start.1, word(lines, start)))
    });
    let marked = place.and_then(|(line, _, length)| Some((lines.get(line - 1)?.as_str(), length)));
    LocatedFault {
        severity: match fault.severity {
            Severity::Warning => "warning",
            Severity::Error => "error",
        },
        file: origin.map(|origin| &*origin.source),
        line: place.map(|(line, ..)| line),
        column: place.map(|(_, column, _)| column),
        resource: fault.resource.as_ref().map(ToString::to_string),
        field: &fault.field,
        message: fault.reason.trim_end(),
        help: fault.help.as_deref(),
        topic: fault.topic,
        excerpt: excerpt.filter(|_| marked.is_none()),
        marked,
    }
}

/// Returns the line, the column and the length of a part of the text of a field whose name is at `start`: where the whole text is on one
/// line, or else where the part is found for as many times as it is in the text up to there.
fn find(excerpt: &Excerpt, start: (usize, usize), lines: &[String]) -> Option<(usize, usize, usize)> {
    let (first, column) = start;
    let lines = lines.iter().enumerate().skip(first - 1).take(MAX_LINES);
    // The first line is searched from the name on.
    let lines = lines.map(|(index, line)| {
        let skipped = if index + 1 == first { byte_offset(line, column - 1) } else { 0 };
        (index + 1, line.as_str(), skipped)
    });
    let part = excerpt.marked();
    let length = part.chars().count();
    for (number, line, skipped) in lines.clone() {
        if let Some(offset) = line[skipped..].find(&*excerpt.text) {
            let before = &line[..skipped + offset + excerpt.start];
            return Some((number, before.chars().count() + 1, length));
        }
    }
    if part.trim().is_empty() {
        return None;
    }
    let nth = excerpt.text[..excerpt.start].matches(part).count();
    let found = lines.flat_map(|(number, line, skipped)| {
        line[skipped..].match_indices(part).map(move |(offset, _)| (number, &line[..skipped + offset]))
    });
    found.map(|(number, before)| (number, before.chars().count() + 1, length)).nth(nth)
}

fn byte_offset(line: &str, characters: usize) -> usize {
    line.char_indices().nth(characters).map_or(line.len(), |(offset, _)| offset)
}

/// Returns the length of the word or the quoted text at a place.
fn word(lines: &[String], (line, column): (usize, usize)) -> usize {
    let Some(line) = lines.get(line - 1) else { return 1 };
    let rest = &line[byte_offset(line, column - 1)..];
    let quote = rest.chars().next().filter(|first| matches!(first, '"' | '\''));
    let length = match quote {
        Some(quote) => rest[1..].find(quote).map(|end| rest[..end + 2].chars().count()),
        None => Some(
            rest.chars().take_while(|letter| !letter.is_whitespace() && !":,[]{}".contains(*letter)).count(),
        ),
    };
    length.unwrap_or(1).max(1)
}

/// In the alternate form `{:#}` with colours.
impl fmt::Display for LocatedFault<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in [
            self.file.map(str::to_owned),
            self.line.map(|n| n.to_string()),
            self.column.map(|n| n.to_string()),
        ]
        .iter()
        .flatten()
        {
            write!(f, "{part}:")?;
        }
        if self.file.is_some() {
            f.write_str(" ")?;
        }
        let severity = match self.severity {
            "error" => style::BAD,
            _ => style::WARNING,
        };
        write!(f, "{}: ", painted(f, severity, self.severity))?;
        if let Some(resource) = &self.resource {
            write!(f, "{resource}: ")?;
        }
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        writeln!(f, "{}", self.message)?;
        if let (Some((text, length)), Some(line), Some(column)) = (self.marked, self.line, self.column) {
            fmt_line(f, &line.to_string(), text, column, length)?;
        } else if let Some(excerpt) = self.excerpt {
            let before = excerpt.text.get(..excerpt.start).unwrap_or_default();
            // An expression of several lines is shown up to the end of the part at fault.
            let (skipped, column) =
                before.rsplit_once('\n').map_or(("", before), |(lines, last)| (lines, last));
            let line = excerpt.text.lines().nth(skipped.lines().count()).unwrap_or_default();
            let column = column.chars().count() + 1;
            fmt_line(f, "", line, column, excerpt.marked().chars().count())?;
        }
        match self.help {
            Some(help) => writeln!(f, "  = {}: {help}", painted(f, style::HELP, "help")),
            None => Ok(()),
        }
    }
}

/// Writes a line with its number, and carets below the part from a column on.
fn fmt_line(
    f: &mut fmt::Formatter<'_>,
    number: &str,
    line: &str,
    column: usize,
    length: usize,
) -> fmt::Result {
    let gutter = " ".repeat(number.len());
    let indent: String = line.chars().take(column - 1).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
    let rest = line.chars().count().saturating_sub(column - 1);
    let carets = "^".repeat(length.min(rest).max(1));
    let [empty, numbered] =
        [gutter.as_str(), number].map(|text| painted(f, style::FRAME, &format!("{text} |")));
    writeln!(f, "{empty}")?;
    writeln!(f, "{numbered} {line}")?;
    writeln!(f, "{empty} {indent}{}", painted(f, style::BAD, &carets))
}

/// The text, with a style in the alternate form `{:#}`.
fn painted(f: &fmt::Formatter<'_>, style: Style, text: &str) -> String {
    if f.alternate() { format!("{style}{text}{style:#}") } else { text.to_owned() }
}

impl LocatedFault<'_> {
    /// A workflow command of GitHub Actions, which shows the fault at its line of a pull request.
    pub(super) fn to_annotation(&self) -> String {
        let mut properties = Vec::new();
        if let Some(file) = self.file {
            properties.push(format!("file={}", property(file)));
        }
        properties.extend(self.line.map(|line| format!("line={line}")));
        properties.extend(self.column.map(|column| format!("col={column}")));
        if let Some(resource) = &self.resource {
            properties.push(format!("title={}", property(resource)));
        }
        let mut message = String::new();
        if !self.field.is_empty() {
            let _ = write!(message, "{}: ", self.field);
        }
        message.push_str(self.message);
        if let Some(help) = self.help {
            let _ = write!(message, "\n{help}");
        }
        format!("::{} {}::{}\n", self.severity, properties.join(","), escaped(&message))
    }

    fn rule(&self) -> &'static str {
        match self.topic {
            Topic::Configuration => "configuration",
            Topic::UnknownField => "unknown-field",
            Topic::DeprecatedField => "deprecated-field",
            Topic::InvalidConstant => "invalid-constant",
        }
    }

    fn to_sarif(&self) -> Json {
        let mut message = self.message.to_owned();
        if let Some(help) = self.help {
            let _ = write!(message, "\n{help}");
        }
        let mut location = json!({});
        if let Some(file) = self.file {
            location["physicalLocation"] = json!({ "artifactLocation": { "uri": file } });
            if let (Some(line), Some(column)) = (self.line, self.column) {
                location["physicalLocation"]["region"] = json!({ "startLine": line, "startColumn": column });
            }
        }
        if let Some(resource) = &self.resource {
            let name = match self.field {
                "" => resource.clone(),
                field => format!("{resource}: {field}"),
            };
            location["logicalLocations"] = json!([{ "fullyQualifiedName": name }]);
        }
        json!({
            "ruleId": self.rule(),
            "level": self.severity,
            "message": { "text": message },
            "locations": [location],
        })
    }
}

/// Escapes the text of a workflow command.
fn escaped(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// Escapes a property of a workflow command.
fn property(text: &str) -> String {
    escaped(text).replace(':', "%3A").replace(',', "%2C")
}

/// Returns a SARIF log, the format of code scanning tools.
pub(super) fn sarif(faults: &[LocatedFault<'_>]) -> Json {
    let driver = json!({
        "name": "mixer-adapter validate",
        "version": env!("CARGO_PKG_VERSION"),
        "rules": [
            { "id": "configuration", "shortDescription": { "text": "A resource that cannot be used as it is written" } },
            { "id": "unknown-field", "shortDescription": { "text": "A field that this version of the API does not have" } },
            { "id": "deprecated-field", "shortDescription": { "text": "A field that later versions of the API do not have" } },
            { "id": "invalid-constant", "shortDescription": { "text": "A constant that cannot be evaluated" } },
        ],
    });
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": driver },
            // Columns of this program are characters.
            "columnKind": "unicodeCodePoints",
            "results": faults.iter().map(LocatedFault::to_sarif).collect::<Vec<_>>(),
        }],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use mixer_adapter_config::parse;

    fn rendered(text: &str, faults: &[ValidationError]) -> String {
        let mut texts = Texts::default();
        texts.add("x.yaml", text);
        texts.locate(faults).iter().map(ToString::to_string).collect()
    }

    /// A rule with this `match`, and a fault in the first `b` of its condition.
    fn condition(written: &str, text: &str) -> String {
        let yaml = format!("kind: rule\nmetadata: {{name: r, namespace: b}}\nspec:\n  match: {written}\n");
        let resource = parse(&yaml, "x.yaml", "").resources.remove(0);
        let start = text.find('b').unwrap_or_default();
        let excerpt = Excerpt { text: text.into(), start, end: start + 1 };
        rendered(&yaml, &[resource.error("match", "wrong").in_excerpt(excerpt).with_help("write c")])
    }

    #[test]
    fn a_part_of_an_expression_is_marked_in_the_file() {
        let expected = "x.yaml:4:16: error: r.rule.b: spec.match: wrong\n  |\n4 |   match: 'a == b'\n  |                ^\n  = help: write c\n";
        assert_eq!(condition("'a == b'", "a == b"), expected);
        assert!(condition("a == b", "a == b").starts_with("x.yaml:4:15: "), "plain");
        assert!(condition("\"\\\"b\\\" == b\"", "\"b\" == b").starts_with("x.yaml:4:13: "), "with escapes");
        assert!(condition("|\n    a ==\n    b", "a ==\nb").starts_with("x.yaml:6:5: "), "in a block");
    }

    #[test]
    fn a_fault_of_a_field_marks_its_name_and_one_of_a_received_resource_the_expression() {
        let yaml = "kind: rule\nmetadata: {name: r, namespace: b}\nspec:\n  actoins: []\n";
        let resource = parse(yaml, "x.yaml", "").resources.remove(0);
        let fault = resource.error("actoins", "no such field");
        let expected = "x.yaml:4:3: error: r.rule.b: spec.actoins: no such field\n  |\n4 |   actoins: []\n  |   ^^^^^^^\n";
        assert_eq!(rendered(yaml, &[fault]), expected);
        let excerpt = Excerpt { text: "a ==\n  b".into(), start: 7, end: 8 };
        let received = ValidationError::error("wrong").in_excerpt(excerpt);
        assert_eq!(rendered("", &[received]), "error: wrong\n |\n |   b\n |   ^\n");
    }

    #[test]
    fn an_annotation_is_one_line() {
        let mut texts = Texts::default();
        let fault = ValidationError::warning("50% of\nit").in_field("spec.a").with_help("no");
        let annotation = texts.locate([&fault]).iter().map(LocatedFault::to_annotation).collect::<String>();
        assert_eq!(annotation, "::warning ::spec.a: 50%25 of%0Ait%0Ano\n");
    }
}
