//! Environment variables of flags: `MIXER_ADAPTER_FLAG` for `serve`, `MIXER_ADAPTER_COMMAND_FLAG` for other commands, where the name of
//! the program takes the place of `MIXER_ADAPTER`.

use std::env;

use clap::{Arg, ArgAction, Command, builder::BoolishValueParser};

use super::program;
use mixer_adapter_core::framework::suggest::suggest;

/// The prefix of this framework's own program, which other programs had before they had one.
const OWN_PREFIX: &str = "MIXER_ADAPTER_";

/// Variables that have one meaning in all commands, and one name.
const SHARED: [&str; 2] = ["OUTPUT", "JSON"];

/// Warns about unknown variables whose names are close to the variable of a flag.
pub(super) fn warn_of_unknown(command: &Command) {
    let (prefix, known) = (program::prefix(), variables(command));
    for name in env::vars_os().filter_map(|(name, _)| name.into_string().ok()) {
        let own = name.strip_prefix(&prefix);
        let Some(flag) = own.or_else(|| name.strip_prefix(OWN_PREFIX)) else { continue };
        // Kubernetes sets some for a service named mixer-adapter: MIXER_ADAPTER_PORT, MIXER_ADAPTER_SERVICE_HOST.
        let is_service = flag.split('_').any(|word| ["PORT", "SERVICE"].contains(&word));
        let is_known = known.iter().any(|known| known == flag);
        if is_service || is_known == own.is_some() {
            continue;
        }
        if let Some(similar) = suggest(flag, known.iter().map(String::as_str)) {
            super::print_error(&format!(
                "warning: no flag has the variable {name}; did you mean {prefix}{similar}?"
            ));
        }
    }
}

/// The variables of all flags, without the prefix.
fn variables(command: &Command) -> Vec<String> {
    let prefix = program::prefix();
    let own = command
        .get_arguments()
        .filter_map(|argument| Some(argument.get_env()?.to_str()?.strip_prefix(&prefix)?.to_owned()));
    own.chain(command.get_subcommands().flat_map(variables)).collect()
}

/// Gives each flag of each command its variable, unless the flag hides it (the data of one request) or names another one, such as
/// OpenTelemetry's. Switches are set by `1`, `yes`, `on` or `false`, too.
pub(super) fn by_command(declared: Command) -> Command {
    declared.mut_subcommands(|subcommand| match subcommand.get_name() {
        "serve" => subcommand.mut_args(|argument| with_variable(argument, "")),
        _ => named(subcommand, ""),
    })
}

fn named(command: Command, path: &str) -> Command {
    let path = format!("{path}{}_", upper(command.get_name()));
    let command = command.mut_args(|argument| with_variable(argument, &path));
    command.mut_subcommands(|subcommand| named(subcommand, &path))
}

fn with_variable(argument: Arg, path: &str) -> Arg {
    let flag = argument.get_long().filter(|_| argument.get_env().is_none() && !argument.is_hide_env_set());
    let Some(flag) = flag.map(upper) else { return argument };
    let argument = match argument.get_action() {
        ArgAction::SetTrue => argument.value_parser(BoolishValueParser::new()),
        _ => argument,
    };
    let path = if SHARED.contains(&flag.as_str()) { "" } else { path };
    let prefix = program::prefix();
    match path {
        // CALL_TIMEOUT is for `serve --call-timeout`.
        "CALL_" if flag == "TIMEOUT" => argument.env(format!("{prefix}CALL_COMMAND_TIMEOUT")),
        _ => argument.env(format!("{prefix}{path}{flag}")),
    }
}

fn upper(name: &str) -> String {
    name.to_uppercase().replace('-', "_")
}
