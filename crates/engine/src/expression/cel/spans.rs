use std::collections::HashMap;

use crate::expression::span::Span;

/// Where the parts of an expression are written.
pub(crate) enum Spans<'s> {
    /// Known for each part: of a COMPAT expression.
    Parts(HashMap<u64, Span>),
    /// The parser of CEL does not keep places. A name is looked for in the text.
    Text(&'s str),
}

impl Spans<'_> {
    /// The place of the part with that number, which is about `name`.
    pub(crate) fn of(&self, id: u64, name: &str) -> Span {
        match self {
            Spans::Parts(parts) => parts.get(&id).copied().unwrap_or_default(),
            Spans::Text(text) => match text.find(name).filter(|_| !name.is_empty()) {
                Some(start) => Span::new(start, start + name.len()),
                None => Span::new(0, text.len()),
            },
        }
    }
}
