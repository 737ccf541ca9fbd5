use std::{process::ExitCode, time::Instant};

use anyhow::Context as _;
use clap::{Args, ValueHint};
use serde::Serialize;
use serde_json::Value as Json;

use super::{
    AddAdapters, UsageError,
    admin_client::AdminClient,
    attribute_args::AttributeArgs,
    config_args::ConfigArgs,
    decisions::DecisionSource,
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
use mixer_adapter_engine::{
    Mixer,
    attribute::{ParsedAttributes, parse_json},
    is_decision_id,
    proto::istio::mixer::v1::CheckRequest,
    trace::Trace,
};
use mixer_adapter_host::handler::Caller;
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

    /// Show all steps: rules that do not match, and the parts of conditions and instances
    #[arg(long)]
    all: bool,

    #[command(flatten)]
    decision: DecisionSource,

    /// Show the answer of another configuration, too
    #[arg(long, value_name = "DIR", conflicts_with = "report", value_hint = ValueHint::AnyPath)]
    diff: Option<ScopedUrl>,

    #[command(flatten)]
    output: OutputArgs,

    /// The decision to explain.
    #[arg(skip)]
    decided: Option<Json>,
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
        mut self,
        add: AddAdapters<'_>,
        sample: Option<&'static str>,
    ) -> anyhow::Result<ExitCode> {
        let is_configured = !self.configuration.config.is_empty();
        for argument in self.attributes.take_others(|argument| !is_configured || is_decision_id(argument)) {
            if is_decision_id(&argument) {
                self.decided = Some(super::block_on(self.decision.find(&argument))??);
            } else {
                self.configuration.config.push(argument.parse::<ScopedUrl>().map_err(UsageError::of)?);
            }
        }
        if let Some(decided) = &self.decided {
            warn_of_masks(decided);
            if self.configuration.config.is_empty() {
                return super::block_on(self.ask_server(decided))?.map(|()| ExitCode::SUCCESS);
            }
        }
        let engines = DryRun::new(add, self.call)?;
        let mut loaded = Loaded::read(&self.configuration, sample)?;
        let other = self.diff.as_ref().map(|other| self.compare(&engines, &mut loaded, other)).transpose()?;
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

    /// Lets the server explain a decision with its configuration in use.
    async fn ask_server(&self, decided: &Json) -> anyhow::Result<()> {
        let client = AdminClient::new(&self.decision.port)?;
        let explained = client.post("/explain", &decided["attributes"]).await?;
        if let Some(data) = self.output.data() {
            return data.print(&explained);
        }
        let text = explained["text"].as_str().unwrap_or_default();
        let trace: Trace = serde_json::from_value(explained["trace"].clone())?;
        // The text ends with the steps that decided.
        let text = match text.strip_suffix(&trace.brief()) {
            Some(answer) if self.all => format!("{answer}{trace}"),
            _ => text.to_owned(),
        };
        Ok(super::print_verdict(&text)?)
    }

    /// Returns the answer on one line.
    async fn verdict(&self, mixer: &Mixer) -> anyhow::Result<String> {
        let request = self.check(mixer)?;
        let (answer, _) = trace_check(mixer, request.clone(), Caller::default(), Trace::default()).await;
        Ok(verdict(&request, &answer))
    }

    fn check(&self, mixer: &Mixer) -> anyhow::Result<CheckRequest> {
        let snapshot = mixer.snapshot().context("there is no configuration")?;
        let mut attributes = match &self.decided {
            Some(decided) => {
                let parsed = parse_json(&decided["attributes"], snapshot.vocabulary());
                parsed.map_err(|error| usage!("the decision: {error}"))?
            }
            None => ParsedAttributes::new(),
        };
        attributes.append(&mut self.attributes.request(snapshot.vocabulary())?);
        let mut request = check_request(&attributes, all_words());
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
            return asked.print(self.output.data(), self.all, RpcError::of_call);
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
            (data, None) => asked.print(data, self.all, RpcError::of_call),
            (None, Some(other)) => {
                let code = asked.print(None, self.all, RpcError::of_call)?;
                let answer = if other.same { "the same answer" } else { &other.answer };
                super::print(&format!("\nthe other configuration: {answer}\n"))?;
                Ok(code)
            }
        }
    }
}

/// Warns of values that the decision log does not have.
fn warn_of_masks(decided: &Json) {
    let attributes = decided["attributes"].as_object().into_iter().flatten();
    let masked: Vec<&str> = attributes
        .filter(|(_, value)| value.to_string().contains("***"))
        .map(|(name, _)| name.as_str())
        .collect();
    if !masked.is_empty() {
        super::print_error(&format!(
            "warning: values of {} are masked in the decision log, and rules that read them may answer otherwise",
            masked.join(", ")
        ));
    }
}
