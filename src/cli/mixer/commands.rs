use std::process::ExitCode;

use clap::Args;

use super::{args::MixerArgs, check_request, report_request};
use crate::cli::attribute_args::AttributeArgs;
use mixer_adapter_engine::proto::istio::mixer::v1::{CheckRequest, check_request::QuotaParams};

/// Send a check to a Mixer, and print the answer
#[derive(Debug, Args)]
pub(crate) struct Check {
    #[command(flatten)]
    attributes: AttributeArgs,

    #[command(flatten)]
    mixer: MixerArgs,

    /// Exit with 1 if the request is denied
    #[arg(long)]
    fail: bool,
}

impl Check {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let attributes = self.mixer.request(&self.attributes)?;
        let request = check_request(&attributes, self.mixer.dictionary_words);
        let asked = self.mixer.check(&request)?;
        let is_denied = asked.answer.as_ref().is_ok_and(|answer| answer.json["status"]["code"] != "OK");
        let code = self.mixer.print(asked)?;
        Ok(if self.fail && is_denied { ExitCode::FAILURE } else { code })
    }
}

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
        let request = report_request(&requests, self.mixer.dictionary_words);
        self.mixer.print(self.mixer.report(&request)?)
    }
}

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
        let mut request = check_request(&attributes, self.mixer.dictionary_words);
        self.amount.add_to(&self.name, &mut request);
        self.mixer.print(self.mixer.quota(&request)?)
    }
}
