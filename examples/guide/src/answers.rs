use mixer_adapter::template::{Kubernetes, kubernetes::InstanceMsg, kubernetes::OutputMsg};
use mixer_adapter::template::{listentry, quota};
use mixer_adapter::{Adapter, AdapterError, Call, Check, Code, Context, Grant, Handle, QuotaRequest};
use std::time::Duration;

use super::Params;

fn checks() -> [Check; 2] {
    let allowed = Check::allow().valid_for(Duration::from_secs(60)).uses(100);
    let denied = Check::deny(Code::PermissionDenied, "not today").no_cache();
    [allowed, denied]
}

fn quotas(call: &Call<quota::InstanceMsg, QuotaRequest>, left: i64) -> Grant {
    let request = call.quota();
    let granted = if request.amount <= left || request.best_effort { request.amount.min(left) } else { 0 };
    let grant = Grant::amount(granted).valid_for(Duration::from_secs(1));
    grant
}

struct Workloads;

impl Workloads {
    fn namespace_of(&self, uid: &str) -> String {
        uid.to_owned()
    }
}

impl Adapter for Workloads {
    const NAME: &str = "workloads";
    const DESCRIPTION: &str = "Generates the namespaces of workloads.";
    type Config = Params;
    type Templates = (Kubernetes,);

    async fn open(_: Params, _: Context) -> Result<Self, AdapterError> {
        Ok(Self)
    }
}

impl Handle<Kubernetes> for Workloads {
    async fn handle(&self, call: Call<InstanceMsg>) -> Result<OutputMsg, AdapterError> {
        let source_namespace = self.namespace_of(&call.source_uid);
        Ok(OutputMsg { source_namespace, ..OutputMsg::default() })
    }
}

fn by_peer(call: &Call<listentry::InstanceMsg>) -> Result<Check, AdapterError> {
    match call.peer() {
        Some("spiffe://cluster.local/ns/istio-system/sa/ingress") => Ok(Check::allow().no_cache()),
        _ => Ok(Check::deny(Code::PermissionDenied, "not the ingress").no_cache()),
    }
}

fn errors() -> [AdapterError; 3] {
    let errors = [
        AdapterError::unavailable("the licence server does not answer"), // UNAVAILABLE
        AdapterError::invalid("value: must be a string"),                // INVALID_ARGUMENT
        AdapterError::new(Code::ResourceExhausted, "too many concurrent calls"),
    ];
    errors
}
