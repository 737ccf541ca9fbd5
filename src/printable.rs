//! Texts of peers, such as names of pushed resources and messages of a status, as a terminal and a log may show them.

use std::borrow::Cow;

/// Escapes control characters except tabs, the characters of `plain` and, in colored text, colors. Others could move the cursor, hide
/// text, or end a line of a log.
pub(crate) fn printable<'t>(text: &'t str, plain: &[char], colored: bool) -> Cow<'t, str> {
    let is_plain =
        |character: char| !character.is_control() || character == '\t' || plain.contains(&character);
    if text.chars().all(is_plain) {
        return Cow::Borrowed(text);
    }
    let mut printable = String::with_capacity(text.len() + 16);
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        let (part, after) = match color(rest).filter(|_| colored) {
            Some(length) => rest.split_at(length),
            None => rest.split_at(character.len_utf8()),
        };
        if is_plain(character) || part.len() > 1 && character == ESCAPE {
            printable.push_str(part)
        } else {
            escape(character, &mut printable)
        }
        rest = after;
    }
    Cow::Owned(printable)
}

/// Escapes a control character as JSON and YAML do, whose texts may be on a terminal, too.
fn escape(character: char, printable: &mut String) {
    match character {
        '\n' => printable.push_str("\\n"),
        '\r' => printable.push_str("\\r"),
        character => printable.push_str(&format!("\\u{:04x}", u32::from(character))),
    }
}

const ESCAPE: char = '\u{1b}';

/// The length of the sequence at the start of a text, if it sets a color or a font, and hides nothing.
fn color(text: &str) -> Option<usize> {
    let (numbers, _) = text.strip_prefix("\u{1b}[")?.split_once('m')?;
    numbers
        .split(';')
        .all(|number| number.bytes().all(|byte| byte.is_ascii_digit()) && number != "8")
        .then_some(numbers.len() + 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        for (text, expected) in [
            ("plain ä\t", "plain ä\t"),
            ("a\r\0b", "a\\r\\u0000b"),
            ("\u{1b}]0;title\u{7}", "\\u001b]0;title\\u0007"),
            // CSI as one character.
            ("\u{9b}2J", "\\u009b2J"),
            ("\u{1b}[2J", "\\u001b[2J"),
            ("\u{7f}", "\\u007f"),
        ] {
            for colored in [false, true] {
                assert_eq!(printable(text, &[], colored), expected, "{text:?}");
            }
        }
    }

    #[test]
    fn line_ends_are_kept_where_a_text_has_lines() {
        assert_eq!(printable("a\nb", &['\n'], false), "a\nb");
        assert_eq!(printable("a\nb", &[], false), "a\\nb");
    }

    #[test]
    fn colors_are_kept_where_there_are_some_but_hidden_text_is_shown() {
        let red = "\u{1b}[1m\u{1b}[38;5;9merror\u{1b}[0m";
        assert_eq!(printable(red, &[], true), red);
        assert_eq!(printable("\u{1b}[31m", &[], false), "\\u001b[31m");
        assert_eq!(printable("\u{1b}[8mhidden", &[], true), "\\u001b[8mhidden");
        assert_eq!(printable("\u{1b}[1;8mhidden", &[], true), "\\u001b[1;8mhidden");
        assert_eq!(printable("\u{1b}[", &[], true), "\\u001b[");
    }
}
