//! Environment variables of flags: `MIXER_ADAPTER_FLAG` for `serve`, `MIXER_ADAPTER_COMMAND_FLAG` for other commands.

use std::{
    env,
    ffi::{OsStr, OsString},
};

use clap::{Arg, ArgMatches, Command, parser::ValueSource};
use mixer_adapter_core::framework::suggest::suggest;

const PREFIX: &str = "MIXER_ADAPTER_";

/// Variables that have one meaning in all commands, and one name.
const SHARED: [&str; 2] = ["OUTPUT", "JSON"];

/// Warns about variables that no flag has and whose names are close to one that a flag has.
pub(super) fn warn_of_unknown(command: &Command, declared: &Command) {
    let known = [variables(command), variables(declared)].concat();
    for name in env::vars_os().filter_map(|(name, _)| name.into_string().ok()) {
        let Some(flag) = name.strip_prefix(PREFIX) else { continue };
        // Kubernetes sets some for a service named mixer-adapter: MIXER_ADAPTER_PORT, MIXER_ADAPTER_SERVICE_HOST.
        let is_service = flag.split('_').any(|word| ["PORT", "SERVICE"].contains(&word));
        if is_service || known.iter().any(|known| known == flag) {
            continue;
        }
        if let Some(similar) = suggest(flag, known.iter().map(String::as_str)) {
            super::print_error(&format!(
                "warning: no flag has the variable {name}; did you mean {PREFIX}{similar}?"
            ));
        }
    }
}

/// The variables of all flags, without the prefix.
fn variables(command: &Command) -> Vec<String> {
    let own = command
        .get_arguments()
        .filter_map(|argument| Some(argument.get_env()?.to_str()?.strip_prefix(PREFIX)?.to_owned()));
    own.chain(command.get_subcommands().flat_map(variables)).collect()
}

/// Names the variables of all commands but `serve` after the command. Their flags are declared with the variable's former name, which is
/// that of `serve`.
pub(super) fn by_command(declared: Command) -> Command {
    declared.mut_subcommands(|subcommand| match subcommand.get_name() {
        "serve" => subcommand,
        _ => named(subcommand, ""),
    })
}

fn named(command: Command, path: &str) -> Command {
    let path = format!("{path}{}_", command.get_name().to_uppercase().replace('-', "_"));
    let rename = |argument: Arg| {
        let variable = argument.get_env().and_then(OsStr::to_str).and_then(|name| name.strip_prefix(PREFIX));
        match variable.filter(|flag| !SHARED.contains(flag)).map(|flag| format!("{path}{flag}")) {
            // That of `serve --call-timeout`.
            Some(taken) if taken == "CALL_TIMEOUT" => argument.env(format!("{PREFIX}CALL_COMMAND_TIMEOUT")),
            Some(variable) => argument.env(format!("{PREFIX}{variable}")),
            None => argument,
        }
    };
    command.mut_args(rename).mut_subcommands(|subcommand| named(subcommand, &path))
}

/// Reads the flags of the given command that have no value from variables with their former names, which are declared, and warns about each
/// of them.
pub(super) fn with_former_names(command: Command, declared: &Command, given: &ArgMatches) -> Command {
    let Some((name, given)) = given.subcommand() else { return command };
    let Some(declared) = declared.find_subcommand(name) else { return command };
    let former = |argument: Arg| {
        let id = argument.get_id();
        let declared = declared.get_arguments().find(|declared| declared.get_id() == id);
        let former = declared.and_then(Arg::get_env).map(OsString::from);
        match (former, argument.get_env()) {
            (Some(former), Some(name))
                if former != name
                    && env::var_os(&former).is_some()
                    && env::var_os(name).is_none()
                    && given.value_source(id.as_str()) != Some(ValueSource::CommandLine) =>
            {
                super::print_error(&format!(
                    "warning: {} is deprecated for this command, and will have no effect in the next release; set {}",
                    former.display(),
                    name.display()
                ));
                argument.env(former)
            }
            _ => argument,
        }
    };
    command.mut_subcommand(name, |subcommand| with_former_names(subcommand.mut_args(former), declared, given))
}
