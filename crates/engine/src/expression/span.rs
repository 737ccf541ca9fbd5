use std::fmt::Display;

/// A range in the source of an expression: bytes `start..end`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// The offset of the first byte.
    pub start: u32,
    /// The offset after the last byte; equal to `start` for a position between two characters.
    pub end: u32,
}

impl Span {
    pub(crate) fn new(start: usize, end: usize) -> Self {
        // Expressions are at most `MAX_LENGTH` bytes long, which fits.
        Self { start: start as u32, end: end as u32 }
    }

    /// Returns this part of a source; empty if it is not within.
    pub(crate) fn of(self, source: &str) -> &str {
        source.get(self.start as usize..self.end as usize).unwrap_or_default()
    }

    /// Returns the range from the start of `self` to the end of `other`.
    pub(crate) fn to(self, other: Span) -> Self {
        Self { start: self.start, end: other.end }
    }
}

/// Renders an error as rustc does: the message, the source line with carets, and a hint. The line is omitted if the span
/// is not within `source`.
pub(crate) fn render(source: &str, span: Span, message: &dyn Display, help: Option<&str>) -> String {
    let location = location(source, span).unwrap_or_default();
    let help = help.map_or_else(String::new, |help| format!("  = help: {help}\n"));
    format!("error: {message}\n{location}{help}")
}

/// Returns the lines that show a span in its source.
fn location(source: &str, span: Span) -> Option<String> {
    let (start, end) = (span.start as usize, span.end as usize);
    let head = source.get(..start)?;
    let marked = source.get(start..end)?.lines().next().unwrap_or_default();
    let line_start = head.rfind('\n').map_or(0, |newline| newline + 1);
    let line = source[line_start..].lines().next().unwrap_or_default();
    let (number, before) = (head.matches('\n').count() + 1, &head[line_start..]);
    let column = before.chars().count() + 1;
    let gutter = " ".repeat(number.to_string().len());
    let indent: String = before.chars().map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
    let carets = "^".repeat(marked.chars().count().max(1));
    Some(format!(
        "{gutter}--> {number}:{column}\n{gutter} |\n{number} | {line}\n{gutter} | {indent}{carets}\n"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn carets_are_aligned_after_tabs_and_wide_characters() {
        let text =
            render("ü ||\n\t\"é\" == x", Span::new(15, 16), &"unknown attribute `x`", Some("declare it"));
        assert_eq!(
            text,
            "error: unknown attribute `x`\n --> 2:9\n  |\n2 | \t\"é\" == x\n  | \t       ^\n  = help: declare it\n"
        );
    }

    #[test]
    fn an_empty_span_has_one_caret_and_one_outside_of_the_source_no_line() {
        assert!(render("as ==", Span::new(5, 5), &"m", None).ends_with("1 | as ==\n  |      ^\n"));
        assert_eq!(render("é", Span::new(1, 9), &"m", None), "error: m\n");
    }
}
