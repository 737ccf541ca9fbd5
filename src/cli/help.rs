//! The layout of help: `-h` has a line for each flag, `--help` everything, both as wide as the terminal.

use std::ffi::OsString;

use clap::{Command, builder::Styles};

use super::{attribute_args::HOW_TO_WRITE, program::localized};

/// Adds styles to the help of a command and its subcommands, and lets the terminal wrap its paragraphs.
pub(super) fn lay_out(command: Command, arguments: &[OsString]) -> Command {
    // Variables and values would take most of the short help.
    let short = arguments.iter().any(|argument| argument == "-h");
    let command = match command.get_after_long_help().map(|text| {
        with_headings(localized(&text.to_string().replace(ATTRIBUTES, HOW_TO_WRITE.trim_end())).trim_end())
    }) {
        Some(text) => command.after_long_help(text),
        None => command,
    };
    let command = if short {
        command.mut_args(|argument| {
            let has_value = argument.get_action().takes_values();
            argument.hide_env(true).hide_possible_values(has_value)
        })
    } else {
        command
    };
    command.mut_subcommands(|subcommand| lay_out(subcommand, arguments))
}

/// The place of the syntax of attributes in the text after the flags.
const ATTRIBUTES: &str = "$ATTRIBUTES";

/// What people do, with the commands for it.
const GROUPS: [(&str, &[&str]); 5] = [
    ("Run", &["serve", "try", "source"]),
    ("Try a request", &["check", "report", "quota", "call"]),
    (
        "Write and check a configuration",
        &["init", "validate", "fmt", "test", "explain", "diff", "eval", "envoy-config"],
    ),
    ("Look", &["decisions", "watch", "adapters", "reference", "version"]),
    ("For authors of adapters", &["new", "comply", "manifest", "proto"]),
];

/// Lists the commands in the help of the program by what people do.
pub(super) fn grouped(command: Command) -> Command {
    let header = *Styles::default().get_header();
    let literal = *Styles::default().get_literal();
    let listed = |command: &Command| {
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        format!("  {literal}{:<14}{literal:#}{about}\n", command.get_name())
    };
    let shown = || command.get_subcommands().filter(|command| !command.is_hide_set());
    let named = GROUPS.map(|(heading, names)| {
        let commands = names.iter().filter_map(|name| shown().find(|command| command.get_name() == *name));
        (heading, commands.map(listed).collect::<String>())
    });
    let others =
        shown().filter(|command| !GROUPS.iter().any(|(_, names)| names.contains(&command.get_name())));
    let others = ("Other", others.map(listed).collect());
    let groups = named.into_iter().chain([others]).filter(|(_, commands)| !commands.is_empty());
    let groups: String =
        groups.map(|(heading, commands)| format!("{header}{heading}:{header:#}\n{commands}\n")).collect();
    command.help_template(format!(
        "{{before-help}}{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}{header}Flags of all commands:{header:#}\n{{options}}{{after-help}}"
    ))
}

/// Marks the words before the colon of a paragraph as a heading, as clap does with its own.
fn with_headings(text: &str) -> String {
    let header = *Styles::default().get_header();
    let mut styled = text.to_owned();
    for heading in [EXAMPLES, EXIT_CODES] {
        styled = styled.replace(heading, &format!("{header}{heading}{header:#}"));
    }
    styled
}

/// The headings of the text after the flags.
pub(super) const EXAMPLES: &str = "Examples:";
pub(super) const EXIT_CODES: &str = "Exit codes:";
