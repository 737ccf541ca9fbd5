//! Regular expressions: RE2's syntax, as Go has it, run by the `regex` crate.
//!
//! Both match in linear time. They differ in what a few sequences mean; those are written differently here.

use regex::{Regex, RegexBuilder};

/// The most memory one compiled pattern may take. Patterns can come from a request.
const MAX_SIZE: usize = 1 << 20;

/// Compiles a pattern that is searched anywhere in a text.
pub(crate) fn compile(pattern: &str) -> Result<Regex, String> {
    let translated = translate(pattern);
    RegexBuilder::new(&translated)
        .size_limit(MAX_SIZE)
        .dfa_size_limit(MAX_SIZE)
        .build()
        .map_err(|error| format!("`{pattern}`: {}", reason(&error)))
}

/// The last line of an error; the lines before it draw the translated pattern.
fn reason(error: &regex::Error) -> String {
    let text = error.to_string();
    let last = text.lines().last().unwrap_or_default();
    last.strip_prefix("error: ").unwrap_or(last).to_owned()
}

/// Rewrites what the two syntaxes disagree on: `\d`, `\s`, `\w` and `\b` know only ASCII in Go, `\Q..\E` quotes, and
/// a bracket or a doubled `&`, `-` or `~` in a class is itself.
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

/// The length of `[`, `[^`, `[]` or `[^]`: a bracket that closes at once would close nothing, so it is itself.
fn opening(rest: &str) -> usize {
    let negated = 1 + usize::from(rest[1..].starts_with('^'));
    negated + usize::from(rest[negated..].starts_with(']'))
}

/// The length of `[:alpha:]`.
fn posix(rest: &str) -> Option<usize> {
    let name = rest.strip_prefix("[:")?;
    let end = name.find(":]")?;
    name[..end].chars().all(|c| c.is_ascii_lowercase() || c == '^').then_some(end + 4)
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
    fn a_broken_or_huge_pattern_is_an_error_that_quotes_it() {
        for pattern in ["a(?!b)", "a(", "[a", "a\\", "(((a{100}){100}){100})", "*"] {
            assert!(compile(pattern).unwrap_err().contains(pattern), "{pattern}");
        }
    }
}
