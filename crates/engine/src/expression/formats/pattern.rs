//! Regular expressions in RE2's syntax, as Go implements it, run by the `regex` crate.
//!
//! Both match in linear time. The few sequences whose meaning differs are translated.

use std::sync::{Arc, LazyLock};

use moka::sync::Cache;
use regex::{Regex, RegexBuilder};

use crate::expression::error::quoted;

/// Maximum memory of a compiled pattern in bytes: patterns can come from a request.
const MAX_SIZE: usize = 1 << 20;

/// Maximum length of a pattern from a request in bytes: parsing takes a hundred times as much memory.
const MAX_COMPUTED: usize = 16 << 10;

/// The maximum number of patterns from requests in the cache.
const MAX_CACHED: u64 = 64;

/// The patterns that requests had lately.
static COMPUTED: LazyLock<Cache<Box<str>, Compiled>> = LazyLock::new(|| Cache::new(MAX_CACHED));

type Compiled = Result<Arc<Regex>, PatternError>;

/// A string that is not a regular expression.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{pattern}`: {reason}")]
pub(crate) struct PatternError {
    pattern: String,
    reason: String,
}

/// Returns the compiled pattern from a request, cached if it was used lately.
pub(crate) fn compile_computed(pattern: &str) -> Compiled {
    if pattern.len() > MAX_COMPUTED {
        let reason = format!("a pattern from a request has at most {} KiB", MAX_COMPUTED >> 10);
        return Err(PatternError::new(pattern, reason));
    }
    if let Some(compiled) = COMPUTED.get(pattern) {
        return compiled;
    }
    let compiled = compile(pattern).map(Arc::new);
    COMPUTED.insert(pattern.into(), compiled.clone());
    compiled
}

/// Compiles a pattern; it matches anywhere in a string.
pub(crate) fn compile(pattern: &str) -> Result<Regex, PatternError> {
    let translated = translate(pattern);
    RegexBuilder::new(&translated)
        .size_limit(MAX_SIZE)
        .dfa_size_limit(MAX_SIZE)
        .build()
        .map_err(|error| PatternError::new(pattern, reason(&error)))
}

impl PatternError {
    fn new(pattern: &str, reason: String) -> Self {
        Self { pattern: quoted(pattern).into_owned(), reason }
    }
}

/// Returns the last line of an error; the lines before it quote the translated pattern.
fn reason(error: &regex::Error) -> String {
    let text = error.to_string();
    let last = text.lines().last().unwrap_or_default();
    last.strip_prefix("error: ").unwrap_or(last).to_owned()
}

/// Translates the differences between the two syntaxes: `\d`, `\s`, `\w` and `\b` are ASCII in Go, `\Q..\E` quotes, and a
/// bracket or a doubled `&`, `-` or `~` in a class is literal.
fn translate(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len());
    let mut rest = pattern;
    let mut class = false;
    while let Some(c) = rest.chars().next() {
        let length = match c {
            '\\' => escape(rest, class, &mut out),
            '[' if !class => {
                class = true;
                let length = opening(rest);
                out.push_str(&rest[..length].replace(']', "\\]"));
                length
            }
            '[' => match posix(rest) {
                Some(length) => {
                    out.push_str(&rest[..length]);
                    length
                }
                None => push(&mut out, "\\[", 1),
            },
            ']' => {
                class = false;
                push(&mut out, "]", 1)
            }
            '&' | '~' if class => {
                out.push('\\');
                out.push(c);
                1
            }
            '-' if class && rest[1..].starts_with("-") => push(&mut out, "\\-", 1),
            _ => {
                out.push(c);
                c.len_utf8()
            }
        };
        rest = &rest[length..];
    }
    out
}

fn push(out: &mut String, text: &str, length: usize) -> usize {
    out.push_str(text);
    length
}

/// Returns the length of `[`, `[^`, `[]` or `[^]`: a bracket that would close an empty class is literal.
fn opening(rest: &str) -> usize {
    let negated = 1 + usize::from(rest[1..].starts_with('^'));
    negated + usize::from(rest[negated..].starts_with(']'))
}

/// Returns the length of a POSIX class such as `[:alpha:]`.
fn posix(rest: &str) -> Option<usize> {
    let name = rest.strip_prefix("[:")?;
    let end = name.find(|c: char| !c.is_ascii_lowercase() && c != '^')?;
    name[end..].starts_with(":]").then_some(end + 4)
}

/// Translates the escape sequence at the start of `rest`; returns its length.
fn escape(rest: &str, class: bool, out: &mut String) -> usize {
    let Some(c) = rest[1..].chars().next() else { return push(out, "\\", 1) };
    let length = 1 + c.len_utf8();
    let text = match (c, class) {
        ('d', false) => "[0-9]",
        ('D', _) => "[^0-9]",
        ('s', false) => r"[\t\n\f\r ]",
        ('S', _) => r"[^\t\n\f\r ]",
        ('w', false) => "[0-9A-Za-z_]",
        ('W', _) => "[^0-9A-Za-z_]",
        ('d', true) => "0-9",
        ('s', true) => r"\t\n\f\r ",
        ('w', true) => "0-9A-Za-z_",
        ('b', false) => r"(?-u:\b)",
        ('B', false) => r"(?-u:\B)",
        ('Q', false) => {
            let quoted = &rest[2..];
            let end = quoted.find("\\E");
            out.push_str(&regex::escape(&quoted[..end.unwrap_or(quoted.len())]));
            return 2 + end.map_or(quoted.len(), |end| end + 2);
        }
        _ => &rest[..length],
    };
    push(out, text, length)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn patterns_mean_what_they_mean_in_go() {
        for (pattern, text, matches) in [
            (r"^\d+$", "12", true),
            (r"^\d+$", "١٢", false),
            (r"^\w$", "é", false),
            (r"^[\w.]+$", "a.b_1", true),
            (r"^[^\s]$", "\u{a0}", true),
            (r"^[\D]$", "é", true),
            (r"^[[]$", "[", true),
            (r"^[]a]+$", "]a", true),
            (r"^[^]]$", "x", true),
            (r"^[a&&b]+$", "a&b", true),
            (r"^[[:alpha:]]+$", "ab", true),
            (r"^[[:^alpha:]]+$", "12", true),
            (r"^[[:]+$", "[:", true),
            (r"^\Qa.b\E$", "a.b", true),
            (r"^\Qa.b\E$", "axb", false),
            (r"\Q(", "(", true),
            (r"é\b", "é", false),
            (r"a\Bb", "ab", true),
            ("(?i)ABC", "xabcx", true),
        ] {
            assert_eq!(compile(pattern).unwrap().is_match(text), matches, "{pattern} {text}");
        }
    }

    #[test]
    fn patterns_of_requests_are_compiled_once_and_limited() {
        let first = compile_computed("^cached$").unwrap();
        assert!(Arc::ptr_eq(&first, &compile_computed("^cached$").unwrap()));
        for number in 0..1_000 {
            assert!(compile_computed(&format!("^{number}$")).unwrap().is_match(&number.to_string()));
        }
        COMPUTED.run_pending_tasks();
        assert!(COMPUTED.entry_count() <= MAX_CACHED);
        let error = compile_computed(&"a".repeat(MAX_COMPUTED + 1)).unwrap_err().to_string();
        assert!(error.contains("at most 16 KiB") && error.len() < 1_000, "{error}");
        assert!(compile_computed("a(").is_err() && compile_computed("a(").is_err());
    }

    #[test]
    fn an_invalid_or_huge_pattern_is_an_error_that_quotes_it() {
        for pattern in ["a(?!b)", "a(", "[a", "a\\", "(((a{100}){100}){100})", "*"] {
            assert!(compile(pattern).unwrap_err().to_string().contains(pattern), "{pattern}");
        }
    }
}
