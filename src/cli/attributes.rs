//! `--attributes`: what a request is described by.

use clap::Args;
use serde_json::Value as Json;

use super::{Usage, input};
use mixer_adapter_engine::attribute::{ParsedAttributes, Vocabulary, parse_json, parse_text};

/// For the end of a command's help.
macro_rules! how_to_write {
    () => {
        "\
Attributes are NAME=VALUE,NAME=VALUE. A value is of the type that its prefix says:
  string:5  int:5  double:5  bool:true  ip:10.0.0.1  time:2019-05-06T07:08:09Z  duration:1m30s
  map:a=b;c=d  bytes:AAECAw==
Without a prefix the type of the standard attribute of that name counts (request.path is a STRING, source.ip an
IP_ADDRESS, request.headers a STRING_MAP); a name that is none is INT64, DOUBLE or BOOL where it looks like one, or
else a STRING. In a value, \\, is a comma; in a map also \\; and \\=. @FILE is YAML or JSON:
  request.path: /x
  source.ip: 10.0.0.1
  request.headers: {a: b}"
    };
}
pub(super) use how_to_write;

/// The requests of a command.
#[derive(Debug, Args)]
pub(super) struct Attributes {
    /// What the request is described by; may be repeated
    #[arg(short, long = "attributes", value_name = "NAME=VALUE,..|@FILE")]
    arguments: Vec<String>,
}

impl Attributes {
    /// One request: all that is given, in its order.
    pub(super) fn request(&self, types: &Vocabulary) -> Result<ParsedAttributes, Usage> {
        let mut request = ParsedAttributes::new();
        for argument in &self.arguments {
            let [one] = &mut read(argument, types)?[..] else {
                return Err(Usage(format!(
                    "--attributes: {argument} is a list of requests, which only a report has"
                )));
            };
            request.append(one);
        }
        Ok(request)
    }

    /// Several requests: one for each time that `--attributes` is given, and more where a file has a list.
    pub(super) fn requests(&self, types: &Vocabulary) -> Result<Vec<ParsedAttributes>, Usage> {
        let mut requests = Vec::new();
        for argument in &self.arguments {
            requests.extend(read(argument, types)?);
        }
        match requests.is_empty() {
            true => Ok(vec![ParsedAttributes::new()]),
            false => Ok(requests),
        }
    }
}

fn read(argument: &str, types: &Vocabulary) -> Result<Vec<ParsedAttributes>, Usage> {
    let (text, _) = input::text("--attributes", argument)?;
    if !argument.starts_with('@') {
        let read = parse_text(&text, types).map_err(|error| Usage(format!("--attributes: {error}")))?;
        return Ok(vec![read]);
    }
    let refuse = |why: String| Usage(format!("--attributes {argument}: {why}"));
    let read: Json =
        serde_saphyr::from_str(&text).map_err(|error| refuse(format!("this is no YAML: {error}")))?;
    let requests = match read {
        Json::Array(requests) => requests,
        request => vec![request],
    };
    let requests =
        requests.iter().map(|request| parse_json(request, types).map_err(|error| refuse(error.to_string())));
    requests.collect()
}
