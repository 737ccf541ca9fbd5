use std::process::ExitCode;

use clap::Args;

use super::{args::MixerArgs, print::print_report, report_request};
use crate::cli::attribute_args::{AttributeArgs, how_to_write};

pub(crate) const EXAMPLES: &str = concat!(
    "\
Examples:
  mixer-adapter report \\
      --attributes request.path=/x,response.code=200,request.time=2019-05-06T07:08:09Z
  # two requests in one report
  mixer-adapter report --attributes response.code=200 \\
      --attributes response.code=503
  # a file with a list of requests
  mixer-adapter report --attributes @requests.yaml --explain

",
    how_to_write!(),
    "

Exit codes: 0 the report was delivered, 1 a gRPC error (a part may have been delivered), 2 usage error."
);

/// Send a report of completed requests to a Mixer
#[derive(Debug, Args)]
pub(crate) struct Report {
    #[command(flatten)]
    attributes: AttributeArgs,

    #[command(flatten)]
    mixer: MixerArgs,
}

impl Report {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let requests = self.mixer.requests(&self.attributes)?;
        let request = report_request(&requests, self.mixer.known_words()?);
        let asked = self.mixer.report(&request)?;
        print_report(&request, &asked, self.mixer.output.data(), |status| self.mixer.failure(status))
    }
}
