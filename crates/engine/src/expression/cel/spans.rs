use std::collections::HashMap;

use crate::expression::span::Span;

/// Source positions of the nodes of an expression.
pub(crate) enum Spans<'s> {
    /// By node id, for COMPAT expressions.
    ById(HashMap<u64, Span>),
    /// The source text, in which names are searched: the CEL parser does not record positions.
    Source(&'s str),
}

impl Spans<'_> {
    /// Returns the span of the node `id`, which mentions `name`.
    pub(crate) fn of(&self, id: u64, name: &str) -> Span {
        match self {
            Spans::ById(spans) => spans.get(&id).copied().unwrap_or_default(),
            Spans::Source(text) => match text.find(name).filter(|_| !name.is_empty()) {
                Some(start) => Span::new(start, start + name.len()),
                None => Span::new(0, text.len()),
            },
        }
    }
}
