//! Texts of peers and adapters in the log.

use std::fmt::{self, Write as _};

/// The maximum length of a text in the log, in bytes.
const MAX_BYTES: usize = 1 << 10;

/// Formats a value for a field of the log: its first KiB. As the log quotes and escapes strings, unlike values recorded with `%`,
/// no peer can add a line or a field to it.
pub fn log_text(value: impl fmt::Display) -> String {
    let mut text = BoundedText(String::new());
    if write!(text, "{value}").is_err() {
        text.0.push_str("...");
    }
    text.0
}

/// A text that fails to grow beyond [`MAX_BYTES`], which ends the formatting of longer values.
struct BoundedText(String);

impl fmt::Write for BoundedText {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        let room = MAX_BYTES - self.0.len();
        self.0.push_str(&more[..more.floor_char_boundary(room)]);
        if more.len() > room { Err(fmt::Error) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_of_more_than_a_kibibyte_is_cut() {
        assert_eq!(log_text("short"), "short");
        assert_eq!(log_text("x".repeat(MAX_BYTES)), "x".repeat(MAX_BYTES));
        assert_eq!(log_text(format!("x{}", "ä".repeat(MAX_BYTES))), format!("x{}...", "ä".repeat(511)));
    }

    #[test]
    fn what_is_not_shown_is_not_formatted() {
        struct Endless;
        impl fmt::Display for Endless {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                loop {
                    f.write_str("more ")?;
                }
            }
        }
        assert!(log_text(Endless).starts_with("more more"));
    }
}
