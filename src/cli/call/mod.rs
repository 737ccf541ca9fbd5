//! Calls adapters as Mixer does.

mod answer;
pub(super) mod request;
mod session;

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::Args;
use serde_json::json;
use tonic::{Code, Status};

use request::PreparedCall;

use super::{
    millis, output_args::OutputArgs, rpc_client::RpcClient, rpc_error::RpcError, server_args::ServerArgs,
    value_parsers,
};
use crate::{answer::Rendered, random::random_id, service::session_config};
use mixer_adapter_core::proto::Any;
use mixer_adapter_host::handler::Adapters;

/// Call one template of any adapter server as Mixer does, and print the answer
#[derive(Debug, Args)]
pub(super) struct Call {
    /// The template to call, such as listentry, metric or quota
    #[arg(value_name = "TEMPLATE", required_unless_present = "descriptor")]
    template: Option<String>,

    /// Instead of TEMPLATE, the descriptor set of another template
    ///
    /// A file, or base64 as in its resource
    #[arg(long, value_name = "FILE|BASE64", hide_env = true, conflicts_with = "template")]
    descriptor: Option<String>,

    #[command(flatten)]
    server: ServerArgs,

    /// The adapter of this program that --config configures
    ///
    /// Without --config, with an empty configuration [default: the only adapter that serves the template]
    #[arg(long, value_name = "NAME")]
    adapter: Option<String>,

    /// Configuration of the handler
    ///
    /// JSON, @FILE or @- for stdin. Sent as a google.protobuf.Struct if its message is not known
    #[arg(long, value_name = "JSON", hide_env_values = true)]
    config: Option<String>,

    /// The descriptor set of the configuration
    ///
    /// A file, or base64 as in the adapter resource
    #[arg(long, value_name = "FILE|BASE64")]
    config_descriptor: Option<String>,

    /// The instance: JSON, @FILE or @- for stdin [default: {}]
    ///
    /// Can be repeated for report templates
    #[arg(long = "instance", value_name = "JSON", hide_env = true)]
    instances: Vec<String>,

    /// The full name of instances without a "name" [default: TEMPLATE.instance.istio-system]
    #[arg(long, value_name = "NAME")]
    instance_name: Option<String>,

    /// Open a session for the calls (Validate, CreateSession) and close it after them
    ///
    /// Each step is printed on stderr
    #[arg(long)]
    session: bool,

    /// Amount of quota to request [default: 1]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    quota_amount: Option<i64>,

    /// Accept a part of the quota if not all of it is available
    #[arg(long)]
    best_effort: bool,

    /// Deduplication id [default: a random one]
    #[arg(long, value_name = "ID")]
    dedup_id: Option<String>,

    /// Deadline of each call, which is also sent to the adapter
    ///
    /// 0 for none, as in Mixer
    #[arg(long, value_name = "DURATION", default_value = "0", value_parser = value_parsers::duration)]
    timeout: Duration,

    #[command(flatten)]
    output: OutputArgs,
}

impl Call {
    pub(super) fn run(self, adapters: &Adapters) -> anyhow::Result<ExitCode> {
        let prepared = PreparedCall::read(&self, adapters)?;
        match super::block_on(self.call(&prepared))?? {
            Ok((answer, took)) => {
                let took = millis(took);
                match self.output.data() {
                    Some(data) => data.print(
                        &json!({ "template": prepared.template.name(), "answer": answer.json, "took_ms": took }),
                    )?,
                    None => super::print_verdict(&format!("{}took {took} ms\n", answer.text))?,
                }
                Ok(ExitCode::SUCCESS)
            }
            Err(failure) => match self.output.data() {
                Some(data) => {
                    data.print(&failure.to_json())?;
                    Ok(ExitCode::FAILURE)
                }
                None => Err(failure.into()),
            },
        }
    }

    /// Returns the answer and its latency, or why the call failed.
    async fn call(&self, prepared: &PreparedCall) -> anyhow::Result<Result<(Rendered, Duration), RpcError>> {
        match RpcClient::connect(&self.server, value_parsers::unless_zero(self.timeout)).await {
            Ok(client) => Ok(self.call_over(&client, prepared).await),
            Err(error) => error.downcast::<RpcError>().map(Err),
        }
    }

    async fn call_over(
        &self,
        client: &RpcClient,
        prepared: &PreparedCall,
    ) -> Result<(Rendered, Duration), RpcError> {
        if !self.session {
            return self.call_with(prepared, client, prepared.adapter_config.as_ref()).await;
        }
        let session = session::open(client, prepared).await?;
        let config = session_config(session.clone());
        let outcome = tokio::select! {
            outcome = self.call_with(prepared, client, Some(&config)) => outcome,
            // Close the session in any case.
            _ = tokio::signal::ctrl_c() => Err(RpcError::of_call(&Status::cancelled("interrupted"))),
        };
        let closed = session::close(client, session).await;
        outcome.and_then(|outcome| closed.map(|()| outcome))
    }

    /// Returns the answer and its latency.
    async fn call_with(
        &self,
        prepared: &PreparedCall,
        client: &RpcClient,
        adapter_config: Option<&Any>,
    ) -> Result<(Rendered, Duration), RpcError> {
        let instances = prepared.instances.clone();
        let request = prepared.template.request(instances, adapter_config, prepared.quota_request.as_ref());
        let request = request.with_dedup_id(&self.dedup_id.clone().unwrap_or_else(random_dedup_id));
        let start = Instant::now();
        let answer = client.call(&prepared.method, request).await;
        let answer = answer.and_then(|answer| answer::render(prepared, answer));
        let answer = answer.map_err(|status| self.failure(prepared, adapter_config, &status))?;
        Ok((answer, start.elapsed()))
    }

    fn failure(&self, prepared: &PreparedCall, adapter_config: Option<&Any>, status: &Status) -> RpcError {
        let failure = RpcError::of_call(status);
        match (status.code(), adapter_config) {
            (Code::Unimplemented, _) => failure.with_hint(format!(
                "{} does not serve {}",
                self.server.address,
                prepared.template.method()
            )),
            (Code::FailedPrecondition | Code::InvalidArgument, None) => failure.with_hint(
                "no configuration was sent: --adapter sends an empty one, --config one with fields",
            ),
            _ => failure,
        }
    }
}

/// Returns a positive random number, as Mixer starts with (docs/behaviour/adapter-calls.md#deduplication-ids).
fn random_dedup_id() -> String {
    (random_id() >> 1).to_string()
}
