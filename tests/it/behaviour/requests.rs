//! Requests to the scripted adapters.

use mixer_adapter::{
    prost::bytes::Bytes,
    proto::{
        Any,
        istio::mixer::adapter::model::v1beta1::{CheckResult, QuotaRequest, quota_request::QuotaParams},
    },
    template::{
        ListEntry, Template as _, checknothing::HandleCheckNothingRequest, listentry,
        listentry::HandleListEntryRequest, metric, metric::HandleMetricRequest, quota,
        quota::HandleQuotaRequest,
    },
    value::Value,
};
use mixer_adapter_engine::proto::istio::mixer::adapter::model::v1beta1::CreateSessionRequest;
use test_adapters::params;
use tokio::task::JoinHandle;

use super::support::{Client, ClientError, any};

/// The configuration of a probe that writes to that ledger.
pub fn probe(ledger: &str) -> params::probe::Params {
    params::probe::Params { ledger: ledger.to_owned(), ..Default::default() }
}

pub fn blocker(ledger: &str) -> params::blocker::Params {
    params::blocker::Params { ledger: ledger.to_owned(), ..Default::default() }
}

pub fn bystander(ledger: &str) -> params::bystander::Params {
    params::bystander::Params { ledger: ledger.to_owned() }
}

/// A list entry with a command for the adapter as its value.
pub fn entry(adapter_config: Option<Any>, command: &str) -> HandleListEntryRequest {
    let value = Some(Value::from(command));
    let instance = Some(listentry::InstanceMsg { name: ENTRY.to_owned(), value });
    HandleListEntryRequest { instance, adapter_config, dedup_id: "1".to_owned() }
}

/// The instance of [`entry`].
pub const ENTRY: &str = "entry.instance.istio-system";

/// A metric call of several instances, each with a command as its resource type.
pub fn metrics(adapter_config: Option<Any>, commands: &[&str]) -> HandleMetricRequest {
    let instance = |command: &&str| metric::InstanceMsg {
        name: "metric.instance.istio-system".to_owned(),
        monitored_resource_type: (*command).to_owned(),
        ..Default::default()
    };
    let instances = commands.iter().map(instance).collect();
    HandleMetricRequest { instances, adapter_config, dedup_id: "1".to_owned() }
}

pub fn nothing(adapter_config: Option<Any>) -> HandleCheckNothingRequest {
    let name = "nothing.instance.istio-system".to_owned();
    let instance = Some(mixer_adapter::template::checknothing::InstanceMsg { name });
    HandleCheckNothingRequest { instance, adapter_config, dedup_id: "1".to_owned() }
}

/// A quota call that asks for that amount.
pub fn quota(adapter_config: Option<Any>, amount: i64, best_effort: bool) -> HandleQuotaRequest {
    let name = "quota.instance.istio-system".to_owned();
    let asked = QuotaParams { amount, best_effort, ..QuotaParams::default() };
    HandleQuotaRequest {
        instance: Some(quota::InstanceMsg { name: name.clone(), ..Default::default() }),
        adapter_config,
        dedup_id: "1".to_owned(),
        quota_request: Some(QuotaRequest { quotas: [(name, asked)].into() }),
    }
}

/// A session that announces [`ENTRY`].
pub fn session(adapter_config: Option<Any>) -> CreateSessionRequest {
    CreateSessionRequest { adapter_config, inferred_types: [inferred(ENTRY, "listentry")].into() }
}

/// An entry of `inferred_types` as a real Mixer sends it: the message's bare name, no field set.
pub fn inferred(instance: &str, template: &str) -> (String, Any) {
    (instance.to_owned(), Any { type_url: format!("{template}.Type"), value: Bytes::new() })
}

/// A session id in place of configuration.
pub fn session_id(id: &str) -> Option<Any> {
    Some(Any { type_url: "google.protobuf.Any.type_url".to_owned(), value: id.to_owned().into() })
}

/// The answer of a probe to a command.
pub async fn run_command(client: &Client, ledger: &str, command: &str) -> Result<CheckResult, ClientError> {
    client.call(ListEntry::METHOD, &entry(any(&probe(ledger)), command)).await
}

/// The same, in the background.
pub fn telling(client: &Client, ledger: &str, command: &str) -> JoinHandle<Result<CheckResult, ClientError>> {
    let (client, ledger, command) = (client.clone(), ledger.to_owned(), command.to_owned());
    tokio::spawn(async move { run_command(&client, &ledger, &command).await })
}
