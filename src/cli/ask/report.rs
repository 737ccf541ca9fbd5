use std::process::ExitCode;

use clap::Args;

use super::{print::print_report, report_request, server::Server};
use crate::cli::attributes::{Attributes, how_to_write};

pub(crate) const EXAMPLES: &str = concat!(
    "\
Examples:
  mixer-adapter report --attributes request.path=/x,response.code=200,request.time=2019-05-06T07:08:09Z
  mixer-adapter report --attributes response.code=200 --attributes response.code=503    two requests in one report
  mixer-adapter report --attributes @requests.yaml --explain    a file with a list of requests

",
    how_to_write!(),
    "

Exit codes: 0 all of it was delivered, 1 there is a gRPC error (what could be delivered was), 2 the command line is
wrong."
);

/// Tell a Mixer about requests that are over
#[derive(Debug, Args)]
pub(crate) struct Report {
    #[command(flatten)]
    attributes: Attributes,

    #[command(flatten)]
    server: Server,
}

impl Report {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let requests = self.attributes.requests(&Server::types())?;
        let request = report_request(&requests, self.server.known_words()?);
        let asked = self.server.report(&request)?;
        print_report(&request, &asked, self.server.json, |status| self.server.failure(status))
    }
}
