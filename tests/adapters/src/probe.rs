//! An adapter that misbehaves on request.

use mixer_adapter::{
    Adapter, AdapterError, Call, Check, Code, Context, DirectHttpResponse, Grant, Handle, QuotaRequest,
    adapter::{Faults, Settings},
    prost_types,
    proto::google::rpc::{ErrorInfo, RetryInfo},
    template::{ListEntry, Metric, Quota, listentry, metric, quota},
};

use crate::ledger::{Entry, ledger};
pub use crate::params::probe::Params;

/// Executes the value of a list entry: `allow`, `deny`, `fail`, `deny with details`, `fail with details`, `panic`, `panic early` (in the method, before its future), `abort` (a panic while another one unwinds), `peer` (a denial with the name of the client), `log` (a warning), `spin` (busy for a while), `hang` (forever), `block` (the thread, forever), `block in place` or `wait` (for the gate).
#[derive(Debug)]
pub struct Probe {
    entry: Entry,
    params: Params,
}

/// A configuration with a ledger and without a fault.
#[derive(Debug)]
pub struct ProbeSettings(Params);

impl Settings for ProbeSettings {
    type Params = Params;

    fn parse(params: Params, faults: &mut Faults<'_>) -> Option<Self> {
        faults.text("ledger", &params.ledger).required()?;
        match params.fault.as_str() {
            "" => {}
            "panic" => panic!("panic in validate on request"),
            "block" => ledger(&params.ledger).block_at_gate(),
            fault => faults.push("fault", format!("it is {fault}")),
        }
        if faults.types().iter().any(|inferred| inferred.instance == params.refused) {
            faults.push("refused", "it has this instance");
        }
        Some(Self(params))
    }
}

impl Adapter for Probe {
    const NAME: &str = "probe";
    const DESCRIPTION: &str = "Misbehaves on request.";
    type Config = ProbeSettings;
    type Templates = (ListEntry, Metric, Quota);

    async fn open(ProbeSettings(params): ProbeSettings, _: Context) -> Result<Self, AdapterError> {
        let entry = ledger(&params.ledger).opening();
        let refused = match params.open.as_str() {
            "fail" => Some(AdapterError::unavailable("the back end is not available")),
            "panic" => panic!("panic in open on request"),
            "wait" => {
                entry.ledger.pass_gate().await;
                None
            }
            "block" => {
                entry.ledger.block_at_gate();
                None
            }
            _ => None,
        };
        match refused {
            None => Ok(Self { entry, params }),
            Some(error) => {
                entry.close();
                Err(error)
            }
        }
    }

    async fn close(self) {
        self.entry.close();
    }
}

impl Probe {
    async fn execute(&self, command: &str, peer: Option<&str>) -> Result<Check, AdapterError> {
        let call = self.entry.call();
        let answer = match command {
            "deny" => Ok(Check::deny(Code::PermissionDenied, "denied on request")),
            "fail" => Err(AdapterError::unavailable("failed on request")),
            "deny with details" => {
                let reason = ErrorInfo { reason: "ASKED".to_owned(), ..ErrorInfo::default() };
                Ok(Check::deny(Code::PermissionDenied, "denied on request")
                    .with_direct_response(&DirectHttpResponse { code: 451, ..DirectHttpResponse::default() })
                    .detail(&reason)
                    .localized("de", "abgelehnt"))
            }
            "fail with details" => {
                let later = RetryInfo { retry_delay: Some(prost_types::Duration { seconds: 30, nanos: 0 }) };
                let error = AdapterError::unavailable("failed on request").detail(&later);
                Err(error.localized("de", "x".repeat(5000)))
            }
            "panic" => panic!("panic on request"),
            "abort" => {
                let _panics = PanicOnDrop;
                panic!("the cause of an abort")
            }
            "peer" => Ok(Check::deny(Code::PermissionDenied, peer.unwrap_or_default())),
            "log" => {
                tracing::warn!(command, "an event of the author");
                Ok(Check::allow())
            }
            "spin" => {
                self.entry.ledger.spin();
                Ok(Check::allow())
            }
            "hang" => std::future::pending().await,
            "block" => {
                tracing::warn!(command, "an event of the author");
                loop {
                    std::thread::park();
                }
            }
            "block in place" => Ok(block_in_place()),
            "wait" => {
                self.entry.ledger.pass_gate().await;
                Ok(Check::allow())
            }
            _ => Ok(Check::allow()),
        };
        call.finish();
        answer
    }
}

/// Allows, after work that tokio permits on some threads only.
#[expect(
    clippy::disallowed_methods,
    reason = "it panics on a thread that serves calls, which a test expects"
)]
pub(crate) fn block_in_place() -> Check {
    tokio::task::block_in_place(Check::allow)
}

struct PanicOnDrop;

impl Drop for PanicOnDrop {
    fn drop(&mut self) {
        panic!("panic on drop");
    }
}

impl Handle<ListEntry> for Probe {
    #[allow(clippy::manual_async_fn)] // a panic before the future is one of the commands
    fn handle(
        &self,
        call: Call<listentry::InstanceMsg>,
    ) -> impl Future<Output = Result<Check, AdapterError>> + Send {
        let command = call.value.as_ref().map(ToString::to_string).unwrap_or_default();
        assert_ne!(command, "panic early", "panic before the future");
        async move {
            let check = self.execute(&command, call.peer()).await?;
            // The use count identifies the configuration of the handler.
            Ok(check.uses(u32::try_from(self.params.maybe.unwrap_or(1000)).unwrap_or_default()))
        }
    }
}

impl Handle<Metric> for Probe {
    async fn handle(&self, instances: Call<Vec<metric::InstanceMsg>>) -> Result<(), AdapterError> {
        for instance in instances.iter() {
            self.execute(&instance.monitored_resource_type, None).await?;
        }
        Ok(())
    }
}

impl Handle<Quota> for Probe {
    async fn handle(&self, _: Call<quota::InstanceMsg, QuotaRequest>) -> Result<Grant, AdapterError> {
        self.entry.call().finish();
        Ok(Grant::amount(self.params.grant))
    }
}
