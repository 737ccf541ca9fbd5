//! `--attributes`: the attributes of requests.

use std::collections::BTreeSet;

use clap::Args;
use serde_json::Value as Json;

use super::{UsageError, faults, input};
use mixer_adapter_engine::attribute::{ParsedAttributes, Vocabulary, parse_json, parse_text};

/// Help on the syntax of attributes.
pub(super) const HOW_TO_WRITE: &str = include_str!("texts/attributes.txt");

/// The attributes of the requests of a command.
#[derive(Debug, Args)]
pub(super) struct AttributeArgs {
    /// Attributes of the request; several arguments are attributes of one request
    #[arg(value_name = "NAME=VALUE,..|@FILE")]
    positional: Vec<String>,

    /// The same; can be repeated, and in a report each is another request
    #[arg(short, long = "attributes", value_name = "NAME=VALUE,..|@FILE", hide_env = true)]
    arguments: Vec<String>,
}

impl AttributeArgs {
    /// One request with all attributes, in their order.
    pub(super) fn request(&self, types: &Vocabulary) -> Result<ParsedAttributes, UsageError> {
        let mut request = ParsedAttributes::new();
        for argument in self.positional.iter().chain(&self.arguments) {
            let [one] = &mut read(argument, types)?[..] else {
                return Err(usage!(
                    "--attributes: {argument} is a list of requests; only reports have several"
                ));
            };
            request.append(one);
        }
        Ok(request)
    }

    /// Takes the arguments that are neither attributes nor files of them, and are `wanted`.
    pub(super) fn take_others(&mut self, wanted: impl Fn(&str) -> bool) -> Vec<String> {
        let others = self.positional.extract_if(.., |argument| {
            let is_other = argument.contains("://") || !argument.contains('=') && !argument.starts_with('@');
            is_other && wanted(argument)
        });
        others.collect()
    }

    /// Several requests: one for each `--attributes`, or several for a file with a list.
    pub(super) fn requests(&self, types: &Vocabulary) -> Result<Vec<ParsedAttributes>, UsageError> {
        let mut requests = Vec::new();
        let mut first = ParsedAttributes::new();
        for argument in &self.positional {
            match &mut read(argument, types)?[..] {
                [one] => first.append(one),
                several => requests.extend(several.iter_mut().map(std::mem::take)),
            }
        }
        if !first.is_empty() {
            requests.insert(0, first);
        }
        for argument in &self.arguments {
            requests.extend(read(argument, types)?);
        }
        if requests.is_empty() { Ok(vec![ParsedAttributes::new()]) } else { Ok(requests) }
    }
}

/// Warns about attributes that no standard manifest declares: rules read them only if a manifest of the server does.
pub(super) fn warn_of_undeclared(requests: &[ParsedAttributes], types: &Vocabulary) {
    let names: BTreeSet<&str> = requests.iter().flatten().map(|(name, _)| name.as_str()).collect();
    for name in names.into_iter().filter(|name| types.find(name).is_none()) {
        let help = match types.similar(name) {
            Some(similar) => format!("did you mean {similar}?"),
            None => "rules read it only if an attribute manifest declares it".to_owned(),
        };
        super::print_error(&format!("warning: {name} is not a standard attribute; {help}"));
    }
}

fn read(argument: &str, types: &Vocabulary) -> Result<Vec<ParsedAttributes>, UsageError> {
    let (text, _) = input::text("--attributes", argument)?;
    if !argument.starts_with('@') {
        let read = parse_text(&text, types).map_err(|error| usage!("--attributes: {error}"))?;
        return Ok(vec![read]);
    }
    let source = argument.strip_prefix('@').filter(|file| *file != "-").unwrap_or("stdin");
    let read: Json = serde_saphyr::from_str(&text).map_err(|error| {
        usage!("--attributes {argument}: not valid YAML\n{}", faults::of_yaml(source, &text, &error))
    })?;
    let requests = match read {
        Json::Array(requests) => requests,
        request => vec![request],
    };
    let requests = requests.iter().map(|request| {
        parse_json(request, types).map_err(|error| usage!("--attributes {argument}: {error}"))
    });
    requests.collect()
}
