use std::process::ExitCode;

use clap::Args;

use super::{args::MixerArgs, check_request, print::print_check};
use crate::cli::attribute_args::{AttributeArgs, how_to_write};

pub(crate) const EXAMPLES: &str = concat!(
    "\
Examples:
  mixer-adapter check --attributes request.url_path=/admin
  mixer-adapter check --attributes request.url_path=/admin --explain
  mixer-adapter check --attributes @request.yaml \\
      --attributes source.ip=10.0.0.1 --json | jq .status
  mixer-adapter check --address istio-policy:9091 \\
      --attributes destination.namespace=default

",
    how_to_write!(),
    "

Exit codes: 0 an answer (a denial is one), 1 a gRPC error, 2 usage error."
);

/// Send a check to a Mixer, and print the answer
#[derive(Debug, Args)]
pub(crate) struct Check {
    #[command(flatten)]
    attributes: AttributeArgs,

    #[command(flatten)]
    mixer: MixerArgs,
}

impl Check {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let attributes = self.mixer.request(&self.attributes)?;
        let request = check_request(&attributes, self.mixer.known_words()?);
        let asked = self.mixer.check(&request)?;
        print_check(&request, &asked, self.mixer.output.data(), |status| self.mixer.failure(status))
    }
}
