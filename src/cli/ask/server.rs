use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use prost::Message;
use tonic::{Code, Status};

use super::Asked;
use crate::cli::{Usage, failure::Failure, print_error, remote::Remote, values};
use mixer_adapter_engine::{
    attribute::Vocabulary,
    dictionary::WORDS,
    proto::{
        istio::mixer::v1::{CheckRequest, CheckResponse, ReportRequest, ReportResponse},
        mixer_adapter::v1::{CheckExplanation, ReportExplanation},
    },
    trace::Trace,
};

/// Which Mixer is asked, and how.
#[derive(Debug, Args)]
pub(super) struct Server {
    /// The Mixer: this program's `serve`, or a real one
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:9091", env = "MIXER_ADAPTER_ADDRESS", value_parser = values::target)]
    address: String,

    /// How long to wait for an answer; the server is told. 0 waits for ever
    #[arg(long, value_name = "DURATION", default_value = "0", env = "MIXER_ADAPTER_TIMEOUT", value_parser = values::duration)]
    timeout: Duration,

    /// Print why, too: rules, instances, calls of adapters. Only this program's server tells; where it listens for other
    /// machines it is started with `serve --explain`
    #[arg(long, env = "MIXER_ADAPTER_EXPLAIN", value_parser = values::switch())]
    explain: bool,

    /// Words of the global dictionary to use; Mixers before 1.3 refuse more than 221, those before 1.1 more than 202
    #[arg(long, value_name = "N", default_value_t = WORDS.len(), env = "MIXER_ADAPTER_DICTIONARY_WORDS")]
    dictionary_words: usize,

    /// Print JSON
    #[arg(long, env = "MIXER_ADAPTER_JSON", value_parser = values::switch())]
    pub(super) json: bool,
}

impl Server {
    /// The words to compress attributes with.
    pub(super) fn known_words(&self) -> Result<usize, Usage> {
        match self.dictionary_words {
            known if known <= WORDS.len() => Ok(known),
            more => Err(Usage(format!(
                "--dictionary-words: the dictionary of the last release has {} words, not {more}",
                WORDS.len()
            ))),
        }
    }

    pub(super) fn check(&self, request: &CheckRequest) -> anyhow::Result<Asked<CheckResponse>> {
        self.ask(CHECK, request, EXPLAIN_CHECK, |explained: CheckExplanation| {
            let answer = explained.response.ok_or_else(|| status(explained.error));
            (answer, explained.trace)
        })
    }

    pub(super) fn report(&self, request: &ReportRequest) -> anyhow::Result<Asked<ReportResponse>> {
        self.ask(REPORT, request, EXPLAIN_REPORT, |explained: ReportExplanation| {
            let answer = match explained.error {
                None => Ok(ReportResponse {}),
                error => Err(status(error)),
            };
            (answer, explained.trace)
        })
    }

    /// Asks for an explanation where one is wanted, and plainly where there is none to be had.
    fn ask<Answer: Message + Default, Explained: Message + Default>(
        &self,
        method: &'static str,
        request: &impl Message,
        explaining: &'static str,
        explained: impl FnOnce(Explained) -> (Result<Answer, Status>, String),
    ) -> anyhow::Result<Asked<Answer>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.context("the runtime cannot start")?;
        let timeout = values::unless_zero(self.timeout);
        runtime.block_on(async {
            let remote = Remote::connect(&self.address).await;
            let remote = remote.map_err(|status| Failure::of_step("connecting", &status).hint(NOBODY))?;
            let start = Instant::now();
            if self.explain {
                match remote.rpc(explaining, request, timeout).await {
                    Ok(answered) => {
                        let took = start.elapsed();
                        let (answer, trace) = explained(answered);
                        let trace: Trace =
                            serde_json::from_str(&trace).context("the trace cannot be read")?;
                        return Ok(Asked { answer, trace: Some(trace), took });
                    }
                    Err(status) if status.code() == Code::Unimplemented => {
                        // The answer comes all the same.
                        print_error(&format!("{} {NO_TRACE}", self.address));
                    }
                    Err(status) => {
                        return Ok(Asked { answer: Err(status), trace: None, took: start.elapsed() });
                    }
                }
            }
            let start = Instant::now();
            let answer = remote.rpc(method, request, timeout).await;
            Ok(Asked { answer, trace: None, took: start.elapsed() })
        })
    }

    /// An error in place of an answer, with what to try.
    pub(super) fn failure(&self, status: &Status) -> Failure {
        let failure = Failure::of_call(status);
        match status.code() {
            Code::Unimplemented => {
                failure.hint(format!("{} does not serve istio.mixer.v1.Mixer: it is no Mixer", self.address))
            }
            _ => failure,
        }
    }

    /// The types of attributes that a value without prefix is read by.
    pub(super) fn types() -> Vocabulary {
        let mut types = Vocabulary::new();
        types.declare_standard();
        types
    }
}

const CHECK: &str = "/istio.mixer.v1.Mixer/Check";
const REPORT: &str = "/istio.mixer.v1.Mixer/Report";
const EXPLAIN_CHECK: &str = "/mixer_adapter.v1.Explain/Check";
const EXPLAIN_REPORT: &str = "/mixer_adapter.v1.Explain/Report";

const NOBODY: &str = "nothing may be served there: `serve` is a Mixer, --address names another one";
const NO_TRACE: &str =
    "does not say why: it is another Mixer, or listens for other machines without `serve --explain`";

fn status(written: Option<mixer_adapter_core::proto::Status>) -> Status {
    let written = written.unwrap_or_default();
    Status::new(Code::from_i32(written.code), written.message)
}
