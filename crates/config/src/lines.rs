use serde_json::Value as Json;

use crate::validation_error::Position;

/// The positions that a JSON value was written at: a tree of the same shape, its children in the order in which the value iterates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Lines {
    /// The line of the value, or of its key in an object; from 1, 0 if unknown.
    pub line: u32,
    pub column: u32,
    pub children: Box<[Lines]>,
}

impl Lines {
    pub(super) fn leaf(position: Position) -> Self {
        Self::new(position, Box::default())
    }

    pub(super) fn new(Position { line, column }: Position, children: Box<[Self]>) -> Self {
        Self { line, column, children }
    }

    pub(super) fn position(&self) -> Position {
        Position { line: self.line, column: self.column }
    }

    /// Takes the lines of an object's field, where it is there.
    pub(super) fn take(&mut self, json: &Json, name: &str) -> Self {
        let at = json.as_object().and_then(|fields| fields.keys().position(|key| key == name));
        at.and_then(|at| self.children.get_mut(at)).map(std::mem::take).unwrap_or_default()
    }

    /// Returns the position of a field in that value, or of the innermost enclosing value that exists. Fields are found
    /// in snake and in camel case. A path has the form `actions[0].handler` or `attributes["source.ip"].value_type`.
    pub(super) fn of_field(&self, json: &Json, path: &str) -> Position {
        let (mut lines, mut json) = (self, json);
        for step in Steps(path) {
            let child = match (&step, json) {
                (Step::Item(index), Json::Array(items)) => items.get(*index).map(|item| (*index, item)),
                (Step::Field(name), Json::Object(fields)) => {
                    let mut fields = fields.iter().enumerate();
                    let found = fields.find(|(_, (key, _))| is_same_field(key, name));
                    found.map(|(index, (_, value))| (index, value))
                }
                _ => None,
            };
            match child.and_then(|(index, value)| Some((lines.children.get(index)?, value))) {
                Some((deeper, value)) => (lines, json) = (deeper, value),
                None => break,
            }
        }
        lines.position()
    }
}

fn is_same_field(key: &str, name: &str) -> bool {
    fn bare(text: &str) -> String {
        text.chars().filter(|letter| *letter != '_').collect::<String>().to_lowercase()
    }
    key == name || (!name.contains('.') && bare(key) == bare(name))
}

enum Step {
    Field(String),
    Item(usize),
}

/// Returns the step of a path to a field, with its separator.
pub(super) fn step(name: &str) -> String {
    if name.contains(['.', '[', '"']) { format!("[{name:?}]") } else { format!(".{name}") }
}

/// The steps of a path; ends early where the text is no path.
struct Steps<'a>(&'a str);

impl Iterator for Steps<'_> {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        self.0 = self.0.strip_prefix('.').unwrap_or(self.0);
        if let Some(quoted) = self.0.strip_prefix('[') {
            let mut key = serde_json::Deserializer::from_str(quoted).into_iter::<Json>();
            let step = match key.next()?.ok()? {
                Json::String(name) => Step::Field(name),
                Json::Number(index) => Step::Item(index.as_u64()?.try_into().ok()?),
                _ => return None,
            };
            self.0 = quoted[key.byte_offset()..].strip_prefix(']')?;
            return Some(step);
        }
        let end = self.0.find(['.', '[']).unwrap_or(self.0.len());
        let (name, rest) = self.0.split_at(end);
        self.0 = rest;
        (!name.is_empty()).then(|| Step::Field(name.to_owned()))
    }
}
