use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use clap::{Args, builder::RangedU64ValueParser};
use prost::Message;
use tonic::{Code, Status};

use super::{TimedAnswer, reported};
use crate::answer::Rendered;
use crate::cli::{
    self, UsageError,
    attribute_args::{AttributeArgs, warn_of_undeclared},
    output_args::OutputArgs,
    print_error,
    rpc_client::RpcClient,
    rpc_error::RpcError,
    server_args::ServerArgs,
    value_parsers,
};
use mixer_adapter_engine::{
    attribute::{ParsedAttributes, Vocabulary},
    build::standard_vocabulary,
    dictionary::WORDS,
    proto::{
        istio::mixer::v1::{CheckRequest, CheckResponse, ReportRequest, ReportResponse},
        mixer_adapter::v1::{CheckExplanation, ReportExplanation},
    },
    trace::{Step, Trace},
};
use mixer_adapter_host::handler::grpc_error;

/// The address of a Mixer, and options of requests to it.
#[derive(Debug, Args)]
pub(super) struct MixerArgs {
    #[command(flatten)]
    server: ServerArgs,

    /// Deadline of the request, which is also sent to the server; 0 for none
    #[arg(long, value_name = "DURATION", default_value = "0", value_parser = value_parsers::duration)]
    timeout: Duration,

    /// Print the explanation, too
    ///
    /// Rules, instances, calls of adapters. Only this program's server has it; on non-loopback addresses it needs
    /// `serve --explain`
    #[arg(long)]
    explain: bool,

    /// With --explain, show all steps: rules that do not match, and the parts of conditions and instances
    #[arg(long, requires = "explain")]
    all: bool,

    /// Words of the global dictionary to use
    ///
    /// Mixers before 1.3 reject more than 221, those before 1.1 more than 202
    #[arg(long, value_name = "N", default_value_t = WORDS.len(), value_parser = dictionary_words())]
    pub(super) dictionary_words: usize,

    #[command(flatten)]
    output: OutputArgs,
}

impl MixerArgs {
    /// Reads one request with all attributes.
    pub(super) fn request(&self, attributes: &AttributeArgs) -> Result<ParsedAttributes, UsageError> {
        let types = standard_vocabulary();
        let request = attributes.request(&types)?;
        self.warn_of_undeclared(std::slice::from_ref(&request), &types);
        Ok(request)
    }

    /// Reads several requests.
    pub(super) fn requests(&self, attributes: &AttributeArgs) -> Result<Vec<ParsedAttributes>, UsageError> {
        let types = standard_vocabulary();
        let requests = attributes.requests(&types)?;
        self.warn_of_undeclared(&requests, &types);
        Ok(requests)
    }

    /// An explanation has such attributes, too, and the server knows its manifests.
    fn warn_of_undeclared(&self, requests: &[ParsedAttributes], types: &Vocabulary) {
        if !self.explain {
            warn_of_undeclared(requests, types);
        }
    }

    /// Sends a check with a quota request, and warns of a quota that no rule of the server has.
    pub(super) fn quota(&self, request: &CheckRequest) -> anyhow::Result<TimedAnswer> {
        let mut asked = self.explained_check(request, true)?;
        if !self.explain {
            let steps = asked.trace.take().unwrap_or_default().steps;
            for step in steps.iter().filter(|step| matches!(step, Step::UnknownQuota { .. })) {
                print_error(&format!("warning: {step}"));
            }
        }
        Ok(asked)
    }

    pub(super) fn check(&self, request: &CheckRequest) -> anyhow::Result<TimedAnswer> {
        self.explained_check(request, false)
    }

    fn explained_check(&self, request: &CheckRequest, explain: bool) -> anyhow::Result<TimedAnswer> {
        self.send(
            explain,
            CHECK,
            request,
            EXPLAIN_CHECK,
            |explained: CheckExplanation| {
                let answer = explained.response.ok_or_else(|| status(explained.error));
                (answer, explained.trace)
            },
            |response: &CheckResponse| Rendered::check(request, response),
        )
    }

    pub(super) fn report(&self, request: &ReportRequest) -> anyhow::Result<TimedAnswer> {
        self.send(
            false,
            REPORT,
            request,
            EXPLAIN_REPORT,
            |explained: ReportExplanation| {
                let answer = match explained.error {
                    None => Ok(ReportResponse {}),
                    error => Err(status(error)),
                };
                (answer, explained.trace)
            },
            |_: &ReportResponse| reported(request),
        )
    }

    /// Sends the request, by the Explain service if an explanation is requested and the server has this service. `explain`
    /// requests one without `--explain`, which this client may not be allowed.
    fn send<Answer: Message + Default, Explained: Message + Default>(
        &self,
        explain: bool,
        method: &'static str,
        request: &impl Message,
        explaining: &'static str,
        explained: impl FnOnce(Explained) -> (Result<Answer, Status>, String),
        render: impl Fn(&Answer) -> Rendered,
    ) -> anyhow::Result<TimedAnswer> {
        cli::block_on(async {
            let client = RpcClient::connect(&self.server, value_parsers::unless_zero(self.timeout)).await?;
            let start = Instant::now();
            if self.explain || explain {
                match client.rpc(explaining, request).await {
                    Ok(answered) => {
                        let took = start.elapsed();
                        let (answer, trace) = explained(answered);
                        let trace: Trace = serde_json::from_str(&trace).context("cannot decode the trace")?;
                        let answer = answer.map(|answer| render(&answer));
                        return Ok(TimedAnswer { answer, trace: Some(trace), took });
                    }
                    Err(status) if status.code() == Code::Unimplemented && self.explain => {
                        print_error(&format!("{} {NO_TRACE}", self.server.address));
                    }
                    Err(status) if !self.explain && status.code() != Code::Unavailable => {}
                    Err(status) => {
                        return Ok(TimedAnswer { answer: Err(status), trace: None, took: start.elapsed() });
                    }
                }
            }
            let start = Instant::now();
            let answer = client.rpc(method, request).await;
            let answer = answer.map(|answer| render(&answer));
            Ok(TimedAnswer { answer, trace: None, took: start.elapsed() })
        })?
    }

    /// Prints an answer, or the failure in its place.
    pub(super) fn print(&self, asked: TimedAnswer) -> anyhow::Result<ExitCode> {
        asked.print(self.output.data(), self.all, |status| self.failure(status))
    }

    /// The error of a request, with a hint for the user.
    fn failure(&self, status: &Status) -> RpcError {
        let failure = RpcError::of_call(status);
        match status.code() {
            Code::Unimplemented => {
                failure.with_hint(format!("{} does not serve istio.mixer.v1.Mixer", self.server.address))
            }
            _ => failure,
        }
    }
}

fn dictionary_words() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(..=WORDS.len() as u64)
}

const CHECK: &str = "/istio.mixer.v1.Mixer/Check";
const REPORT: &str = "/istio.mixer.v1.Mixer/Report";
const EXPLAIN_CHECK: &str = "/mixer_adapter.v1.Explain/Check";
const EXPLAIN_REPORT: &str = "/mixer_adapter.v1.Explain/Report";

const NO_TRACE: &str =
    "has no explanations: it is another Mixer, or runs on a non-loopback address without `serve --explain`";

fn status(written: Option<mixer_adapter_core::proto::Status>) -> Status {
    grpc_error(written.unwrap_or_default())
}
