use std::process::ExitCode;

use clap::Args;

use super::{check_request, print::print_check, server::Server};
use crate::cli::attributes::{Attributes, how_to_write};

pub(crate) const EXAMPLES: &str = concat!(
    "\
Examples:
  mixer-adapter check --attributes request.path=/admin
  mixer-adapter check --attributes request.path=/admin --explain
  mixer-adapter check --attributes @request.yaml --attributes source.ip=10.0.0.1 --json | jq .status
  mixer-adapter check --address istio-policy:9091 --attributes destination.namespace=default

",
    how_to_write!(),
    "

Exit codes: 0 there is an answer (a denial is one), 1 there is a gRPC error in its place, 2 the command line is wrong."
);

/// Ask a Mixer whether a request may go on, and print its answer
#[derive(Debug, Args)]
pub(crate) struct Check {
    #[command(flatten)]
    attributes: Attributes,

    #[command(flatten)]
    server: Server,
}

impl Check {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let attributes = self.attributes.request(&Server::types())?;
        let request = check_request(&attributes, self.server.known_words()?);
        let asked = self.server.check(&request)?;
        print_check(&request, &asked, self.server.json, |status| self.server.failure(status))
    }
}
