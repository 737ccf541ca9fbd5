//! Translates regular expressions from Go's syntax (RE2) to the syntax of the crate regex.
//!
//! A pattern has the same meaning as in Go, or it is refused. A pattern that both accept with different meanings is rewritten
//! (`\d`, `\s`, `\w`, `\b`, which are ASCII in Go; `\<`, which is a plain `<`), or refused with an alternative. Some patterns
//! that Go refuses are accepted.

use std::ops::Range;

use regex_syntax::ast::{
    self, AssertionKind, Ast, ClassBracketed, ClassPerl, ClassPerlKind, ClassSetBinaryOp, ClassSetItem,
    ClassUnicode, ClassUnicodeKind, Flag, Flags, FlagsItemKind, RepetitionKind, Span, Visitor,
};

use super::error::PatternError;

/// Translates a pattern to the syntax of the crate regex.
pub(super) fn translate(pattern: &str) -> Result<String, PatternError> {
    let ast = ast::parse::Parser::new()
        .parse(pattern)
        .map_err(|error| refusal(error.span(), &error.kind().to_string()))?;
    let edits = ast::visit(&ast, GoSyntax { pattern, edits: Vec::new() })?;
    let mut translated = String::with_capacity(pattern.len());
    let mut rest = 0;
    for (span, replacement) in edits {
        translated.push_str(&pattern[rest..span.start]);
        translated.push_str(replacement);
        rest = span.end;
    }
    translated.push_str(&pattern[rest..]);
    // Names of Unicode classes may still be unknown.
    match regex_syntax::parse(&translated) {
        Ok(_) => Ok(translated),
        Err(regex_syntax::Error::Translate(error)) => Err(PatternError(error.kind().to_string())),
        Err(error) => Err(PatternError(error.to_string())),
    }
}

fn refusal(span: &Span, reason: &str) -> PatternError {
    PatternError(format!("at character {}: {reason}", span.start.column))
}

/// Finds the parts of a pattern to rewrite, in order, and refuses those without an equivalent.
struct GoSyntax<'p> {
    pattern: &'p str,
    edits: Vec<(Range<usize>, &'static str)>,
}

impl GoSyntax<'_> {
    fn text(&self, span: &Span) -> &str {
        &self.pattern[span.start.offset..span.end.offset]
    }

    fn replace(&mut self, span: &Span, replacement: &'static str) {
        self.edits.push((span.start.offset..span.end.offset, replacement));
    }

    fn perl_class(&mut self, class: &ClassPerl) {
        let ascii = match (&class.kind, class.negated) {
            (ClassPerlKind::Digit, false) => "[0-9]",
            (ClassPerlKind::Digit, true) => "[^0-9]",
            (ClassPerlKind::Space, false) => r"[\t\n\f\r\x20]",
            (ClassPerlKind::Space, true) => r"[^\t\n\f\r\x20]",
            (ClassPerlKind::Word, false) => "[0-9A-Za-z_]",
            (ClassPerlKind::Word, true) => "[^0-9A-Za-z_]",
        };
        self.replace(&class.span, ascii);
    }

    fn flags(flags: &Flags) -> Result<(), PatternError> {
        for item in &flags.items {
            if let FlagsItemKind::Flag(Flag::Unicode | Flag::CRLF | Flag::IgnoreWhitespace) = item.kind {
                return Err(refusal(&item.span, "Go has no such flag; it has i, m, s and U"));
            }
        }
        Ok(())
    }

    fn unicode_class(class: &ClassUnicode) -> Result<(), PatternError> {
        let unassigned = match &class.kind {
            ClassUnicodeKind::OneLetter(letter) => *letter == 'C',
            ClassUnicodeKind::Named(name) => name == "C",
            ClassUnicodeKind::NamedValue { .. } => false,
        };
        if unassigned {
            Err(refusal(&class.span, r"write [\p{Cc}\p{Cf}\p{Co}], which is what Go takes it for"))
        } else {
            Ok(())
        }
    }

    fn bracket(&self, class: &ClassBracketed) -> Result<(), PatternError> {
        let content = self.text(&class.span).trim_start_matches('[').trim_start_matches('^');
        if content.starts_with("--") {
            Err(refusal(&class.span, r"write `\-` for a hyphen, Go reads a range here"))
        } else {
            Ok(())
        }
    }

    /// Refuses `{2, 3}`, `{,3}` and `{02}`, which Go reads as plain text.
    fn repetition(&self, span: &Span) -> Result<(), PatternError> {
        let text = self.text(span);
        let bounds = text.trim_end_matches('?').trim_start_matches('{').trim_end_matches('}');
        let is_repetition = match bounds.split_once(',') {
            Some((least, most)) => !least.is_empty() && is_count(least) && is_count(most),
            None => !bounds.is_empty() && is_count(bounds),
        };
        if is_repetition {
            Ok(())
        } else {
            Err(refusal(
                span,
                &format!(r"Go reads {text} as text; write \{text} for that, or a repetition like {{2,3}}"),
            ))
        }
    }
}

impl Visitor for GoSyntax<'_> {
    type Output = Vec<(Range<usize>, &'static str)>;
    type Err = PatternError;

    fn finish(self) -> Result<Self::Output, PatternError> {
        Ok(self.edits)
    }

    fn visit_pre(&mut self, ast: &Ast) -> Result<(), PatternError> {
        match ast {
            Ast::ClassPerl(class) => self.perl_class(class),
            Ast::ClassUnicode(class) => Self::unicode_class(class)?,
            Ast::ClassBracketed(class) => self.bracket(class)?,
            Ast::Flags(set) => Self::flags(&set.flags)?,
            Ast::Group(group) => {
                if let Some(flags) = group.flags() {
                    Self::flags(flags)?;
                }
            }
            Ast::Repetition(repetition) => {
                if let RepetitionKind::Range(_) = repetition.op.kind {
                    self.repetition(&repetition.op.span)?;
                }
            }
            Ast::Assertion(assertion) => match assertion.kind {
                AssertionKind::WordBoundary => self.replace(&assertion.span, r"(?-u:\b)"),
                AssertionKind::NotWordBoundary => self.replace(&assertion.span, r"(?-u:\B)"),
                AssertionKind::WordBoundaryStartAngle => self.replace(&assertion.span, "<"),
                AssertionKind::WordBoundaryEndAngle => self.replace(&assertion.span, ">"),
                AssertionKind::WordBoundaryStart
                | AssertionKind::WordBoundaryEnd
                | AssertionKind::WordBoundaryStartHalf
                | AssertionKind::WordBoundaryEndHalf => {
                    return Err(refusal(&assertion.span, r"Go reads the braces as text; write `\{`"));
                }
                AssertionKind::StartLine
                | AssertionKind::EndLine
                | AssertionKind::StartText
                | AssertionKind::EndText => {}
            },
            Ast::Empty(_) | Ast::Literal(_) | Ast::Dot(_) | Ast::Alternation(_) | Ast::Concat(_) => {}
        }
        Ok(())
    }

    fn visit_class_set_item_pre(&mut self, item: &ClassSetItem) -> Result<(), PatternError> {
        match item {
            ClassSetItem::Perl(class) => self.perl_class(class),
            ClassSetItem::Unicode(class) => Self::unicode_class(class)?,
            ClassSetItem::Bracketed(class) => {
                return Err(refusal(
                    &class.span,
                    r"Go has no class within a class; write `\[` for a bracket",
                ));
            }
            ClassSetItem::Empty(_)
            | ClassSetItem::Literal(_)
            | ClassSetItem::Range(_)
            | ClassSetItem::Ascii(_)
            | ClassSetItem::Union(_) => {}
        }
        Ok(())
    }

    fn visit_class_set_binary_op_pre(&mut self, operation: &ClassSetBinaryOp) -> Result<(), PatternError> {
        Err(refusal(
            &operation.span,
            r"Go has no operations on classes; write `\&`, `\-` or `\~` for the character",
        ))
    }
}

/// Returns whether a bound of a repetition has digits without leading zeros, or none.
fn is_count(bound: &str) -> bool {
    bound.bytes().all(|byte| byte.is_ascii_digit()) && (bound == "0" || !bound.starts_with('0'))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::pattern_set::PatternSet;

    fn matches(pattern: &str, text: &str) -> bool {
        PatternSet::compile([pattern].into_iter()).unwrap().is_match(text)
    }

    // Expectations are Go's: docs/behaviour/adapters.md#letter-case-and-patterns, and the syntax page of package regexp/syntax.
    #[test]
    fn patterns_mean_what_they_mean_to_go() {
        for (pattern, text, expected) in [
            (r"a*b", "xxb", true),
            (r"^a*b$", "xxb", false),
            (r"^\d$", "7", true),
            (r"^\d$", "٣", false),
            (r"^\D$", "٣", true),
            (r"^[\d_]+$", "1_2", true),
            (r"^[^\d]$", "٣", true),
            (r"^[^\D]$", "7", true),
            (r"^\w+$", "né", false),
            (r"^\W$", "é", true),
            (r"^\s$", "\u{a0}", false),
            (r"^\s$", "\u{0b}", false),
            (r"^[\s]$", "\t", true),
            (r"^\S$", "\u{a0}", true),
            (r"\bb\b", "éb", true),
            (r"\Bb", "éb", false),
            (r"a\B", "aéa", false),
            (r"\B", "aéa", false),
            (r"\<a\>", "<a>", true),
            (r"\<a\>", "a", false),
            (r"(?i)straße", "STRAßE", true),
            (r"(?i)^\w$", "\u{17f}", true),
            (r"^.$", "é", true),
            (r"(?s)^.$", "\n", true),
            (r"(?U)^a+b$", "aab", true),
            (r"^[[:alpha:]-]+$", "a-b", true),
            (r"^[]a]$", "]", true),
            (r"^x{2,3}?$", "xxx", true),
            (r"^\pL\p{Greek}$", "aα", true),
            (r"^[^a]$", "\n", true),
            (r"x**", "", true),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text:?}");
        }
    }

    #[test]
    fn patterns_that_would_mean_something_else_are_refused() {
        for (pattern, reason) in [
            ("(", "unclosed group"),
            ("[(", "unclosed character class"),
            (r"\Qa.b\E", "unrecognized escape"),
            (r"a{,2}", "repetition quantifier expects a valid decimal"),
            (r"a{2, 3}", r"write \{2, 3} for that"),
            (r"a{02}", r"write \{02} for that"),
            (r"[\d-z]", "invalid range boundary"),
            (r"[a[b]]", "no class within a class"),
            (r"[[:nope:]]", "no class within a class"),
            (r"[a&&b]", "no operations on classes"),
            (r"[a--b]", "no operations on classes"),
            (r"[--a]", "for a hyphen"),
            (r"(?x) a", "no such flag"),
            (r"(?-u:a)", "no such flag"),
            (r"\b{start}a", "reads the braces as text"),
            (r"\pC", "which is what Go takes it for"),
            (r"[\p{C}]", "which is what Go takes it for"),
            (r"\p{Klingon}", "Unicode property not found"),
            (r"(a)\1", "backreferences are not supported"),
        ] {
            let error = translate(pattern).unwrap_err().to_string();
            assert!(error.contains(reason), "{pattern}: {error}");
            assert!(!error.contains('\n'), "{pattern}: {error}");
        }
    }
}
