//! Calls adapters as Mixer would.

mod answer;
mod load;
mod print;
mod request;
mod session;

use std::{process::ExitCode, sync::Arc, time::Duration};

use anyhow::Context as _;
use clap::Args;
use tonic::{Code, Status};

use answer::Answer;
use load::{Calls, Load};
use request::Prepared;

use super::{failure::Failure, remote::Remote, values};
use mixer_adapter_core::proto::Any;
use mixer_adapter_host::handler::Adapters;

pub(super) const EXAMPLES: &str = "\
Examples:
  mixer-adapter call checknothing --adapter denier
  mixer-adapter call listentry --instance '{\"value\": \"x\"}' --config '{\"valid_duration\": \"1m\"}'
  mixer-adapter call quota --adapter denier --quota-amount 5 --best-effort --session
  mixer-adapter call metric --instance @first.json --instance @second.json --address other:9091
  mixer-adapter call listentry --adapter denier --count 100000 --concurrency 32
  mixer-adapter call --descriptor template.bin --config-descriptor config.bin --config '{\"a\": 1}'

Instances are proto3 JSON: {\"value\": {\"string_value\": \"x\"}}, in short {\"value\": \"x\"}, or 5, or true.
Addresses are text, durations like 1m30s, times RFC 3339: {\"value\": {\"ip_address_value\": \"10.0.0.1\"}}.

Exit codes: 0 the adapter answered (a denial is an answer), 1 it answered with a gRPC error or
could not be reached, 2 the command line is wrong.";

/// Call one template of any adapter server as Mixer would, and print the answer
#[derive(Debug, Args)]
pub(super) struct Call {
    /// The template to call, such as listentry, metric or quota
    #[arg(value_name = "TEMPLATE", required_unless_present = "descriptor")]
    template: Option<String>,

    /// Instead of TEMPLATE, the descriptor set of somebody else's template: a file, or base64 as in its resource
    #[arg(long, value_name = "FILE|BASE64", conflicts_with = "template")]
    descriptor: Option<String>,

    /// The server of the adapter
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:9091", env = "MIXER_ADAPTER_ADDRESS", value_parser = values::target)]
    address: String,

    /// The adapter of this program whose configuration --config is; empty without --config.
    /// Where it is not given, the only adapter that serves the template
    #[arg(long, value_name = "NAME", env = "MIXER_ADAPTER_ADAPTER")]
    adapter: Option<String>,

    /// The handler's configuration: JSON, @FILE or @- for stdin. Sent as a google.protobuf.Struct where its message is
    /// not known
    #[arg(long, value_name = "JSON", env = "MIXER_ADAPTER_CONFIG", hide_env_values = true)]
    config: Option<String>,

    /// The descriptor set of somebody else's configuration: a file, or base64 as in the adapter resource
    #[arg(long, value_name = "FILE|BASE64", env = "MIXER_ADAPTER_CONFIG_DESCRIPTOR")]
    config_descriptor: Option<String>,

    /// The instance: JSON, @FILE or @- for stdin; {} where it is not given. For report templates as often as liked
    #[arg(long = "instance", value_name = "JSON")]
    instances: Vec<String>,

    /// The full name of instances without a "name" of their own [default: TEMPLATE.instance.istio-system]
    #[arg(long, value_name = "NAME", env = "MIXER_ADAPTER_INSTANCE_NAME")]
    instance_name: Option<String>,

    /// Open a session for the calls (Validate, CreateSession) and close it behind them; each step is told on stderr
    #[arg(long, env = "MIXER_ADAPTER_SESSION", value_parser = values::switch())]
    session: bool,

    /// How much quota to ask for [default: 1]
    #[arg(long, value_name = "N", allow_negative_numbers = true, env = "MIXER_ADAPTER_QUOTA_AMOUNT")]
    quota_amount: Option<i64>,

    /// Take a part of the quota where all of it is not to be had
    #[arg(long, env = "MIXER_ADAPTER_BEST_EFFORT", value_parser = values::switch())]
    best_effort: bool,

    /// The id by which the adapter knows a call that is repeated [default: one of its own for each call]
    #[arg(long, value_name = "ID", env = "MIXER_ADAPTER_DEDUP_ID")]
    dedup_id: Option<String>,

    /// How long to wait for an answer; the adapter is told. 0 waits for ever, as Mixer does
    #[arg(long, value_name = "DURATION", default_value = "0", env = "MIXER_ADAPTER_TIMEOUT", value_parser = values::duration)]
    timeout: Duration,

    /// Call that often, and print how many calls a second were answered and how fast
    #[arg(long, value_name = "N", default_value_t = 1, env = "MIXER_ADAPTER_COUNT", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    count: u32,

    /// With --count, calls at a time
    #[arg(long, value_name = "N", default_value_t = 1, env = "MIXER_ADAPTER_CONCURRENCY", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    concurrency: u32,

    /// With --count, connections that share the calls; a real Mixer has one a handler
    #[arg(long, value_name = "N", default_value_t = 1, env = "MIXER_ADAPTER_CONNECTIONS", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    connections: u32,

    /// Print JSON
    #[arg(long, env = "MIXER_ADAPTER_JSON", value_parser = values::switch())]
    json: bool,
}

/// What came of it.
enum Outcome {
    One(Answer, Duration),
    Many(Load),
}

impl Call {
    pub(super) fn run(self, adapters: &Adapters) -> anyhow::Result<ExitCode> {
        let prepared = Arc::new(Prepared::read(&self, adapters)?);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.context("the runtime cannot start")?;
        match runtime.block_on(self.call(&prepared)) {
            Ok(Outcome::One(answer, took)) => {
                print::answer(&prepared, &answer, took, self.json)?;
                Ok(ExitCode::SUCCESS)
            }
            Ok(Outcome::Many(load)) => {
                print::load(&load, self.json)?;
                Ok(if load.failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
            }
            Err(failure) if self.json => {
                super::print_json(&failure.to_json())?;
                Ok(ExitCode::FAILURE)
            }
            Err(failure) => Err(failure.into()),
        }
    }

    async fn call(&self, prepared: &Arc<Prepared>) -> Result<Outcome, Failure> {
        let mut remotes = Vec::new();
        for _ in 0..self.connections.min(self.concurrency) {
            let remote = Remote::connect(&self.address).await;
            remotes.push(remote.map_err(|status| {
                Failure::of_step("connecting", &status)
                    .hint("nothing may be served there: `serve` serves these adapters, --address names another server")
            })?);
        }
        let timeout = values::unless_zero(self.timeout);
        if !self.session {
            return self.calls(prepared, remotes, prepared.adapter_config.as_ref(), timeout).await;
        }
        let session = session::open(&remotes[0], prepared, timeout).await?;
        let config = session::config(&session);
        let outcome = tokio::select! {
            outcome = self.calls(prepared, remotes.clone(), Some(&config), timeout) => outcome,
            // The session is closed all the same.
            _ = tokio::signal::ctrl_c() => Err(Failure::interrupted()),
        };
        let closed = session::close(&remotes[0], session, timeout).await;
        outcome.and_then(|outcome| closed.map(|()| outcome))
    }

    async fn calls(
        &self,
        prepared: &Arc<Prepared>,
        remotes: Vec<Remote>,
        adapter_config: Option<&Any>,
        timeout: Option<Duration>,
    ) -> Result<Outcome, Failure> {
        let calls = Calls::new(prepared.clone(), adapter_config, self.dedup_id.clone(), timeout);
        if self.count == 1 {
            let start = std::time::Instant::now();
            let answer = calls.call(&remotes[0], 0).await;
            let answer = answer.map_err(|status| self.failure(prepared, adapter_config, &status))?;
            return Ok(Outcome::One(answer, start.elapsed()));
        }
        Ok(Outcome::Many(calls.run(remotes, self.count, self.concurrency).await))
    }

    fn failure(&self, prepared: &Prepared, adapter_config: Option<&Any>, status: &Status) -> Failure {
        let failure = Failure::of_call(status);
        match (status.code(), adapter_config) {
            (Code::Unimplemented, _) => {
                failure.hint(format!("{} does not serve {}", self.address, prepared.template.method()))
            }
            (Code::FailedPrecondition | Code::InvalidArgument, None) => failure
                .hint("no configuration was sent: --adapter sends an empty one, --config one with fields"),
            _ => failure,
        }
    }
}
