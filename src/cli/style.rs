//! Colours of text on a terminal.

use std::{ffi::OsString, io};

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use clap::ValueEnum;

/// When text has colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum ColorArg {
    /// On a terminal
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

pub(super) const BAD: Style = AnsiColor::Red.on_default().bold();
pub(super) const GOOD: Style = AnsiColor::Green.on_default().bold();
pub(super) const WARNING: Style = AnsiColor::Yellow.on_default().bold();
pub(super) const HELP: Style = AnsiColor::Cyan.on_default();
pub(super) const FRAME: Style = AnsiColor::Blue.on_default();

/// Applies `--color` before the command line is parsed, for the errors and the help of the parser.
pub(super) fn choose(arguments: &[OsString]) {
    let mut choice = None;
    for (at, argument) in arguments.iter().enumerate() {
        let value = match argument.to_str() {
            Some("--color") => arguments.get(at + 1).and_then(|value| value.to_str()),
            Some(argument) => argument.strip_prefix("--color="),
            None => None,
        };
        choice = value.and_then(|value| ColorArg::from_str(value, false).ok()).or(choice);
    }
    match choice {
        None | Some(ColorArg::Auto) => ColorChoice::Auto,
        Some(ColorArg::Always) => ColorChoice::Always,
        Some(ColorArg::Never) => ColorChoice::Never,
    }
    .write_global();
}

/// Whether text on stdout has colours.
pub(super) fn on_stdout() -> bool {
    AutoStream::choice(&io::stdout()) != ColorChoice::Never
}

/// Whether text on stderr has colours.
pub(super) fn on_stderr() -> bool {
    AutoStream::choice(&io::stderr()) != ColorChoice::Never
}

/// Colours the first word of a text if `words` has it.
pub(super) fn paint_first<'t>(
    text: &'t str,
    words: &[(&str, Style)],
    coloured: bool,
) -> std::borrow::Cow<'t, str> {
    let found = words.iter().find_map(|(word, style)| Some((word, style, text.strip_prefix(word)?)));
    match found.filter(|_| coloured) {
        Some((word, style, rest)) => format!("{style}{word}{style:#}{rest}").into(),
        None => text.into(),
    }
}

/// The words that verdicts begin with.
pub(super) const VERDICTS: [(&str, Style); 2] = [("allowed", GOOD), ("denied", BAD)];
/// The words that messages begin with.
pub(super) const MESSAGES: [(&str, Style); 2] = [("error", BAD), ("warning", WARNING)];
