use std::{process::ExitCode, time::Instant};

use anyhow::Context as _;
use clap::Args;
use serde::Serialize;

use super::{
    attribute_args::AttributeArgs,
    config_args::ConfigArgs,
    diff::verdict,
    dry_run::{DryRun, Loaded},
    mixer::{AmountArgs, TimedAnswer, all_words, check_request, report_request, reported},
    output_args::OutputArgs,
    rpc_error::RpcError,
};
use crate::{
    answer::Rendered,
    service::mixer::{trace_check, trace_report},
};
use mixer_adapter_engine::{Mixer, proto::istio::mixer::v1::CheckRequest, trace::Trace};
use mixer_adapter_host::handler::{AdaptersBuilder, Caller};
use mixer_adapter_streams::ScopedUrl;

/// Explain how a configuration answers a request, without a server
#[derive(Debug, Args)]
pub(super) struct Explain {
    #[command(flatten)]
    configuration: ConfigArgs,

    #[command(flatten)]
    attributes: AttributeArgs,

    /// Request this quota, too
    #[arg(long, value_name = "NAME")]
    quota: Option<String>,

    #[command(flatten)]
    amount: AmountArgs,

    /// Send a report of the requests instead of a check
    #[arg(long, conflicts_with = "quota")]
    report: bool,

    /// Call remote adapters, and deliver reports
    #[arg(long)]
    call: bool,

    /// Show the answer of another configuration, too
    #[arg(long, value_name = "DIR", conflicts_with = "report")]
    diff: Option<ScopedUrl>,

    #[command(flatten)]
    output: OutputArgs,
}

/// The answer of the configuration to compare with.
#[derive(Serialize)]
struct OtherAnswer {
    same: bool,
    /// On one line.
    answer: String,
}

impl Explain {
    pub(super) fn run(
        self,
        add: impl FnOnce(AdaptersBuilder) -> AdaptersBuilder,
        sample: Option<&'static str>,
    ) -> anyhow::Result<ExitCode> {
        let engines = DryRun::new(add, self.call)?;
        let mut loaded = Loaded::read(&self.configuration, sample)?;
        let other = match &self.diff {
            Some(other) => Some(self.compare(&engines, &mut loaded, other)?),
            None => None,
        };
        let code =
            engines.with_engine(&mut loaded, async |mixer| self.explain(mixer, other.as_ref()).await)?;
        engines.close();
        Ok(code)
    }

    fn compare(
        &self,
        engines: &DryRun,
        loaded: &mut Loaded<'_>,
        other: &ScopedUrl,
    ) -> anyhow::Result<OtherAnswer> {
        let mut configuration = self.configuration.clone();
        configuration.config = vec![other.clone()];
        let before = engines.with_engine(loaded, async |mixer| self.verdict(mixer).await)?;
        let mut loaded = Loaded::read(&configuration, None)?;
        let after = engines.with_engine(&mut loaded, async |mixer| self.verdict(mixer).await)?;
        Ok(OtherAnswer { same: before == after, answer: after })
    }

    /// Returns the answer on one line.
    async fn verdict(&self, mixer: &Mixer) -> anyhow::Result<String> {
        let request = self.check(mixer)?;
        let (answer, _) = trace_check(mixer, request.clone(), Caller::default(), Trace::default()).await;
        Ok(verdict(&request, &answer))
    }

    fn check(&self, mixer: &Mixer) -> anyhow::Result<CheckRequest> {
        let snapshot = mixer.snapshot().context("there is no configuration")?;
        let mut request = check_request(&self.attributes.request(snapshot.vocabulary())?, all_words());
        if let Some(quota) = &self.quota {
            self.amount.add_to(quota, &mut request);
        }
        Ok(request)
    }

    async fn explain(&self, mixer: &Mixer, other: Option<&OtherAnswer>) -> anyhow::Result<ExitCode> {
        let caller = Caller::default();
        let start = Instant::now();
        if self.report {
            let snapshot = mixer.snapshot().context("there is no configuration")?;
            let request = report_request(&self.attributes.requests(snapshot.vocabulary())?, all_words());
            let (answer, trace) = trace_report(mixer, request.clone(), caller, Trace::default()).await;
            let answer = answer.map(|_| reported(&request));
            let asked = TimedAnswer { answer, trace: Some(trace), took: start.elapsed() };
            return asked.print(self.output.data(), RpcError::of_call);
        }
        let request = self.check(mixer)?;
        let (answer, trace) = trace_check(mixer, request.clone(), caller, Trace::default()).await;
        let answer = answer.map(|response| Rendered::check(&request, &response));
        let asked = TimedAnswer { answer, trace: Some(trace), took: start.elapsed() };
        match (self.output.data(), other) {
            (Some(data), Some(other)) => {
                let (mut explained, code) = asked.to_json(RpcError::of_call)?;
                explained["other"] = serde_json::to_value(other)?;
                data.print(&explained)?;
                Ok(code)
            }
            (data, None) => asked.print(data, RpcError::of_call),
            (None, Some(other)) => {
                let code = asked.print(None, RpcError::of_call)?;
                let answer = if other.same { "the same answer" } else { &other.answer };
                super::print(&format!("\nthe other configuration: {answer}\n"))?;
                Ok(code)
            }
        }
    }
}
