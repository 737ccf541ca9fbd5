use std::process::ExitCode;

use clap::Args;

use super::{check_request, print::print_check, server::Server};
use crate::cli::{
    attributes::{Attributes, how_to_write},
    values,
};
use mixer_adapter_engine::proto::istio::mixer::v1::{CheckRequest, check_request::QuotaParams};

pub(crate) const EXAMPLES: &str = concat!(
    "\
Examples:
  mixer-adapter quota requests
  mixer-adapter quota requests --amount 30 --best-effort --attributes source.name=alice
  mixer-adapter quota requests --dedup-id a-call --json | jq .quotas.requests.granted_amount

A quota is asked for behind a check: where that is denied, nothing is granted. A name that is no quota of the
configuration is granted in full, as by a real Mixer.

",
    how_to_write!(),
    "

Exit codes: 0 there is an answer (nothing granted is one), 1 there is a gRPC error in its place, 2 the command line
is wrong."
);

/// Ask a Mixer for quota, and print what it grants
#[derive(Debug, Args)]
pub(crate) struct Quota {
    /// The quota: the short name of an instance, `requests` for requests.instance.istio-system
    #[arg(value_name = "NAME")]
    name: String,

    #[command(flatten)]
    amount: Amount,

    #[command(flatten)]
    attributes: Attributes,

    #[command(flatten)]
    server: Server,
}

/// How much of a quota.
#[derive(Debug, Args)]
pub(crate) struct Amount {
    /// How much to ask for
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        allow_negative_numbers = true,
        env = "MIXER_ADAPTER_AMOUNT"
    )]
    amount: i64,

    /// Take a part where all of it is not to be had
    #[arg(long, env = "MIXER_ADAPTER_BEST_EFFORT", value_parser = values::switch())]
    best_effort: bool,

    /// The id by which a request that is sent again counts once [default: one of its own]
    #[arg(long, value_name = "ID", env = "MIXER_ADAPTER_DEDUP_ID")]
    dedup_id: Option<String>,
}

impl Amount {
    /// Asks for that quota, too.
    pub(crate) fn ask(&self, name: &str, request: &mut CheckRequest) {
        let params = QuotaParams { amount: self.amount, best_effort: self.best_effort };
        request.quotas.insert(name.to_owned(), params);
        if let Some(id) = &self.dedup_id {
            request.deduplication_id.clone_from(id);
        }
    }
}

impl Quota {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let attributes = self.attributes.request(&Server::types())?;
        let mut request = check_request(&attributes, self.server.known_words()?);
        self.amount.ask(&self.name, &mut request);
        let asked = self.server.check(&request)?;
        print_check(&request, &asked, self.server.json, |status| self.server.failure(status))
    }
}
