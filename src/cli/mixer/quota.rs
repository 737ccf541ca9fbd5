use std::process::ExitCode;

use clap::Args;

use super::{args::MixerArgs, check_request, print::print_check};
use crate::cli::attribute_args::{AttributeArgs, how_to_write};
use mixer_adapter_engine::proto::istio::mixer::v1::{CheckRequest, check_request::QuotaParams};

pub(crate) const EXAMPLES: &str = concat!(
    "\
Examples:
  mixer-adapter quota requests
  mixer-adapter quota requests --amount 30 --best-effort \\
      --attributes source.name=alice
  mixer-adapter quota requests --dedup-id a-call --json \\
      | jq .quotas.requests.granted_amount

A quota request is part of a check: if the check is denied, nothing is granted. A quota that no rule has is granted in
full, as by a real Mixer, with a warning; `serve --on-unknown-quota deny` grants nothing.

",
    how_to_write!(),
    "

Exit codes: 0 an answer (a grant of nothing is one), 1 a gRPC error, 2 usage error."
);

/// Request quota from a Mixer, and print the grant
#[derive(Debug, Args)]
pub(crate) struct Quota {
    /// The quota: the short name of an instance, `requests` for requests.instance.istio-system
    #[arg(value_name = "NAME")]
    name: String,

    #[command(flatten)]
    amount: AmountArgs,

    #[command(flatten)]
    attributes: AttributeArgs,

    #[command(flatten)]
    mixer: MixerArgs,
}

/// The amount of a quota request.
#[derive(Debug, Args)]
pub(crate) struct AmountArgs {
    /// Amount to request
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true)]
    amount: i64,

    /// Accept a part of the amount if not all of it is available
    #[arg(long)]
    best_effort: bool,

    /// Deduplication id
    ///
    /// Repeated requests with the same id count once [default: a new id]
    #[arg(long, value_name = "ID")]
    dedup_id: Option<String>,
}

impl AmountArgs {
    /// Adds a request for a quota to a check.
    pub(crate) fn add_to(&self, name: &str, request: &mut CheckRequest) {
        let params = QuotaParams { amount: self.amount, best_effort: self.best_effort };
        request.quotas.insert(name.to_owned(), params);
        if let Some(id) = &self.dedup_id {
            request.deduplication_id.clone_from(id);
        }
    }
}

impl Quota {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let attributes = self.mixer.request(&self.attributes)?;
        let mut request = check_request(&attributes, self.mixer.known_words()?);
        self.amount.add_to(&self.name, &mut request);
        let asked = self.mixer.quota(&request)?;
        print_check(&request, &asked, self.mixer.output.data(), |status| self.mixer.failure(status))
    }
}
