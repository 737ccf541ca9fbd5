//! Completions of the command line. The script of a shell gets the candidates from the program itself, so that they include the adapters.

use std::{ffi::OsStr, process::ExitCode};

use clap::{Arg, Args, Command, CommandFactory as _};
use clap_complete::{
    ArgValueCandidates, ArgValueCompleter, CompleteEnv, CompletionCandidate, PathCompleter, Shell,
    engine::ValueCompleter as _, env::Shells,
};

use super::{
    AddAdapters, program,
    reference::{Catalogue, Topic},
};
use mixer_adapter_config::Kind;
use mixer_adapter_host::handler::Adapters;

/// The environment variable by which a script requests candidates.
const REQUEST: &str = "MIXER_ADAPTER_COMPLETE";

/// Print shell completions of commands, flags, adapters, templates, attributes, kinds and files
#[derive(Debug, Args)]
pub(super) struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let program = program::name();
        let mut script = Vec::new();
        if let Some(shell) = Shells::builtins().completer(&self.shell.to_string()) {
            shell.write_registration(REQUEST, program, program, program, &mut script)?;
        }
        Ok(super::print(&String::from_utf8(script)?)?)
    }
}

/// Returns whether a script requests candidates.
pub(super) fn is_requested() -> bool {
    std::env::var_os(REQUEST).is_some()
}

/// Prints the candidates for the command line that a script passes.
pub(super) fn answer(add: AddAdapters<'_>) -> anyhow::Result<ExitCode> {
    super::with_adapters(add, |adapters| {
        let directory = std::env::current_dir().ok();
        CompleteEnv::with_factory(|| with_values(super::Arguments::command(), adapters))
            .var(REQUEST)
            .try_complete(std::env::args_os(), directory.as_deref())?;
        Ok(ExitCode::SUCCESS)
    })
}

/// Adds the candidates that only the data of this program determines.
fn with_values(command: Command, adapters: &Adapters) -> Command {
    let catalogue = Catalogue::new(adapters);
    let all = one_of(Topic::ALL.into_iter().flat_map(|topic| catalogue.names(topic)).collect());
    let (adapters, templates) =
        (one_of(catalogue.names(Topic::Adapters)), one_of(catalogue.names(Topic::Templates)));
    let attributes = catalogue.names(Topic::Attributes);
    let kinds = one_of(Kind::ALL.iter().map(|kind| (format!("{kind}s"), String::new())).collect());
    let commands = command.get_subcommands().filter(|command| !command.is_hide_set());
    let commands = commands.map(|command| {
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        (command.get_name().to_owned(), about)
    });
    let commands = one_of(commands.collect());
    let attributes = ArgValueCompleter::new(move |current: &OsStr| complete_attributes(&attributes, current));
    let json = ArgValueCompleter::new(complete_file_argument);
    let mut command = command;
    for (name, argument, candidates) in [
        ("adapters", "names", &adapters),
        ("manifest", "names", &adapters),
        ("call", "adapter", &adapters),
        ("call", "template", &templates),
        ("man", "command", &commands),
        ("reference", "name", &all),
        ("watch", "collections", &kinds),
        ("serve", "adapters_in_calls", &adapters),
    ] {
        command = with_argument(command, name, argument, |argument| argument.add(candidates.clone()));
    }
    for argument in ["config", "instances"] {
        command = with_argument(command, "call", argument, |argument| argument.add(json.clone()));
    }
    for name in ["check", "report", "quota", "explain", "eval"] {
        for argument in ["positional", "arguments"] {
            command = with_argument(command, name, argument, |argument| argument.add(attributes.clone()));
        }
    }
    command
}

fn with_argument(
    command: Command,
    subcommand: &str,
    argument: &str,
    change: impl FnOnce(Arg) -> Arg,
) -> Command {
    command.mut_subcommand(subcommand, |command| command.mut_arg(argument, change))
}

/// Candidates with their descriptions.
fn one_of(names: Vec<(String, String)>) -> ArgValueCandidates {
    ArgValueCandidates::new(move || names.iter().map(|(name, about)| candidate(name, about)).collect())
}

fn candidate(value: &str, about: &str) -> CompletionCandidate {
    CompletionCandidate::new(value).help((!about.is_empty()).then(|| about.to_owned().into()))
}

/// Completes `NAME=VALUE,NAME=` with names of attributes, and `@` with files.
fn complete_attributes(attributes: &[(String, String)], current: &OsStr) -> Vec<CompletionCandidate> {
    let Some(text) = current.to_str().filter(|text| !text.starts_with('@')) else {
        return complete_file_argument(current);
    };
    let (before, name) =
        text.rsplit_once(',').map_or(("", text), |(_, name)| text.split_at(text.len() - name.len()));
    let matching = attributes.iter().filter(|(attribute, _)| attribute.starts_with(name));
    matching.map(|(attribute, about)| candidate(&format!("{before}{attribute}="), about)).collect()
}

/// Completes `@` with files.
fn complete_file_argument(current: &OsStr) -> Vec<CompletionCandidate> {
    let Some(path) = current.to_str().and_then(|text| text.strip_prefix('@')) else { return Vec::new() };
    let files = PathCompleter::any().complete(OsStr::new(path));
    files.into_iter().map(|file| file.add_prefix("@")).collect()
}
