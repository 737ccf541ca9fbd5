//! `--flags-file`: flags in a file, one on each line.

use std::{
    ffi::OsString,
    io,
    path::{Path, PathBuf},
};

use clap::{ArgMatches, Command, error::ErrorKind, parser::ValueSource};

use super::UsageError;
use mixer_adapter_core::framework::suggest::suggestion;
use mixer_adapter_net::read_file_within;

/// The id of the flag that names the file.
pub(super) const FLAG: &str = "flags_file";

/// Maximum length of a file in bytes.
const MAX_LENGTH: u64 = 1 << 20;

/// A flag of a file.
#[derive(Debug, PartialEq)]
struct Line {
    /// Without the dashes.
    name: String,
    value: Option<String>,
}

/// Why a line is not a flag.
#[derive(Debug, PartialEq, thiserror::Error)]
enum LineError {
    #[error("write a flag, such as --listen 127.0.0.1:9091")]
    NotAFlag,
    #[error("the quote that begins the value does not end on this line")]
    OpenQuote,
    #[error("a flag has one value; quote a value with blanks")]
    Values,
}

/// Inserts the flags of the file after the command, unless the command line has them, too.
///
/// # Errors
/// The file cannot be read, or has a line that is not a flag of the command with a valid value; the error begins with `FILE:LINE`.
pub(super) fn expand(
    command: &Command,
    given: &ArgMatches,
    mut arguments: Vec<OsString>,
) -> Result<Vec<OsString>, UsageError> {
    let Some(file) = given.try_get_one::<PathBuf>(FLAG).ok().flatten() else { return Ok(arguments) };
    let (path, given) = subcommand(given);
    let Some(at) = end_of_path(&arguments, path.len()).filter(|_| !path.is_empty()) else {
        return Ok(arguments);
    };
    // Variables must not replace values of the file.
    let mut command = without_variables(command.clone());
    command.build();
    let target = path.iter().try_fold(&command, |command, name| command.find_subcommand(name));
    let known = target.into_iter().flat_map(Command::get_arguments).filter_map(|argument| {
        let id = argument.get_id().as_str();
        (!["help", "version", FLAG].contains(&id)).then_some((argument.get_long()?, id))
    });
    let known: Vec<(String, String)> = known.map(|(long, id)| (long.to_owned(), id.to_owned())).collect();

    let mut inserted = Vec::new();
    for (number, line) in (1..).zip(read(file)?.lines()) {
        let wrong = |reason: &str| usage!("{}:{number}: {reason}", file.display());
        let Some(line) = parse(line).map_err(|error| wrong(&error.to_string()))? else { continue };
        let Some((_, id)) = known.iter().find(|(long, _)| *long == line.name) else {
            let flags: Vec<String> = known.iter().map(|(long, _)| format!("--{long}")).collect();
            let flag = format!("--{}", line.name);
            let help = suggestion(&flag, &flags.iter().map(String::as_str).collect::<Vec<_>>());
            return Err(wrong(&format!("{} has no flag {flag}; {help}", path.join(" "))));
        };
        let flag = line.to_argument();
        let alone = [&arguments[0]].into_iter().cloned().chain(path.iter().map(OsString::from));
        if let Err(error) = command.try_get_matches_from_mut(alone.chain([flag.clone()])) {
            // Flags that need or exclude others are checked with all of them.
            let alone = [ErrorKind::MissingRequiredArgument, ErrorKind::ArgumentConflict];
            if !alone.contains(&error.kind()) {
                return Err(wrong(&reason(&error)));
            }
        }
        if given.value_source(id) != Some(ValueSource::CommandLine) {
            inserted.push(flag);
        }
    }
    arguments.splice(at..at, inserted);
    Ok(arguments)
}

/// The names of the given subcommand, and its arguments.
fn subcommand(mut given: &ArgMatches) -> (Vec<String>, &ArgMatches) {
    let mut path = Vec::new();
    while let Some((name, inner)) = given.subcommand() {
        path.push(name.to_owned());
        given = inner;
    }
    (path, given)
}

/// The index after this number of subcommands, before which there are only flags with a value.
fn end_of_path(arguments: &[OsString], subcommands: usize) -> Option<usize> {
    let mut at = 1;
    for _ in 0..subcommands {
        while let Some(flag) = arguments.get(at)?.to_str().filter(|argument| argument.starts_with('-')) {
            at += if flag.contains('=') { 1 } else { 2 };
        }
        at += 1;
    }
    (at <= arguments.len()).then_some(at)
}

fn without_variables(command: Command) -> Command {
    let command = command.mut_args(|argument| argument.env(clap::builder::Resettable::Reset));
    command.mut_subcommands(without_variables)
}

fn read(file: &Path) -> Result<String, UsageError> {
    let text = read_file_within(file, MAX_LENGTH).map_err(|error| unreadable(file, error))?;
    String::from_utf8(text).map_err(|error| unreadable(file, io::Error::other(error)))
}

fn unreadable(file: &Path, error: io::Error) -> UsageError {
    usage!("--flags-file: cannot read {}: {error}", file.display())
}

/// Returns the reason without the usage of the command.
fn reason(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let text = text.split("\n\nUsage:").next().unwrap_or_default();
    let text = text.split("\n\nFor more information").next().unwrap_or_default();
    text.trim_start_matches("error: ").trim_end().to_owned()
}

impl Line {
    fn to_argument(&self) -> OsString {
        match &self.value {
            Some(value) => format!("--{}={value}", self.name).into(),
            None => format!("--{}", self.name).into(),
        }
    }
}

/// Parses `--flag`, `--flag VALUE` or `--flag=VALUE`, with quotes and comments as in a shell.
fn parse(text: &str) -> Result<Option<Line>, LineError> {
    let words = shlex::split(text).ok_or(LineError::OpenQuote)?;
    let [flag, values @ ..] = &words[..] else { return Ok(None) };
    let flag = flag.strip_prefix("--").ok_or(LineError::NotAFlag)?;
    let (name, value) = match (flag.split_once('='), values) {
        (Some((name, value)), []) => (name, Some(value)),
        (None, []) => (flag, None),
        (None, [value]) => (flag, Some(value.as_str())),
        _ => return Err(LineError::Values),
    };
    if name.is_empty() {
        return Err(LineError::NotAFlag);
    }
    Ok(Some(Line { name: name.to_owned(), value: value.map(str::to_owned) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Option<(String, Option<String>)>, LineError> {
        Ok(parse(text)?.map(|line| (line.name, line.value)))
    }

    fn flag(name: &str, value: Option<&str>) -> Result<Option<(String, Option<String>)>, LineError> {
        Ok(Some((name.to_owned(), value.map(str::to_owned))))
    }

    #[test]
    fn a_line_has_a_flag_and_its_value() {
        assert_eq!(parsed("--lenient"), flag("lenient", None));
        assert_eq!(parsed("  --listen 127.0.0.1:0  "), flag("listen", Some("127.0.0.1:0")));
        assert_eq!(parsed("--listen=127.0.0.1:0"), flag("listen", Some("127.0.0.1:0")));
        assert_eq!(parsed("--config 'a b'"), flag("config", Some("a b")));
        assert_eq!(parsed("--run="), flag("run", Some("")));
    }

    #[test]
    fn comments_begin_a_line_or_follow_a_blank() {
        assert_eq!(parsed("# --lenient"), Ok(None));
        assert_eq!(parsed(""), Ok(None));
        assert_eq!(parsed("--lenient # as Mixer"), flag("lenient", None));
        assert_eq!(parsed("--run a#b # c"), flag("run", Some("a#b")));
    }

    #[test]
    fn quoted_values_have_blanks_and_number_signs() {
        assert_eq!(parsed(r##"--run " # " # c"##), flag("run", Some(" # ")));
        assert_eq!(parsed(r#"--run "a \"b\" \\ \n""#), flag("run", Some(r#"a "b" \ \n"#)));
        assert_eq!(parsed(r#"--config='{"a": "\\"}'"#), flag("config", Some(r#"{"a": "\\"}"#)));
        assert_eq!(parsed("--run \"a"), Err(LineError::OpenQuote));
        assert_eq!(parsed("--config a b"), Err(LineError::Values));
        assert_eq!(parsed("--run 'a' b"), Err(LineError::Values));
    }

    #[test]
    fn other_lines_are_errors() {
        for text in ["serve", "-o json", "--", "--=x"] {
            assert_eq!(parsed(text), Err(LineError::NotAFlag), "{text}");
        }
    }

    #[test]
    fn flags_follow_the_command() {
        let arguments = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        assert_eq!(end_of_path(&arguments("x serve --a"), 1), Some(2));
        assert_eq!(end_of_path(&arguments("x --flags-file serve --color=never serve"), 1), Some(5));
        assert_eq!(end_of_path(&arguments("x proto check"), 2), Some(3));
        assert_eq!(end_of_path(&arguments("x"), 1), None);
    }
}
