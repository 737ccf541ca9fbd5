//! An adapter with defects, for the compliance suite.

use mixer_adapter::{
    Adapter, AdapterError, Check, Grant, Handle, QuotaRequest,
    adapter::{ConfigErrors, InferredTypes},
    anyhow,
    template::{ListEntry, Quota, listentry, quota},
    value::Value,
};

use crate::params::careless::Params;

/// Has the flaw named in its configuration.
#[derive(Debug)]
pub struct Careless {
    flaw: String,
}

impl Adapter for Careless {
    const NAME: &str = "careless";
    const DESCRIPTION: &str = "Has the flaw named in its configuration.";
    type Config = Params;
    type Templates = (ListEntry, Quota);

    async fn open(params: Params) -> Result<Self, AdapterError> {
        if params.size == 20 {
            return Err(AdapterError::invalid("too large"));
        }
        Ok(Self { flaw: params.flaw })
    }

    fn validate(params: &Params, _: &InferredTypes) -> Result<(), ConfigErrors> {
        match params.size {
            20 => Ok(()),
            10.. => Err(ConfigErrors::single("size", "must be below 10")),
            _ => Ok(()),
        }
    }

    async fn close(self) {
        match self.flaw.as_str() {
            "never closes" => std::future::pending().await,
            "panics closing" => panic!("panic in close, as configured"),
            _ => {}
        }
    }
}

impl Handle<ListEntry> for Careless {
    async fn handle(&self, entry: listentry::InstanceMsg) -> Result<Check, AdapterError> {
        match (self.flaw.as_str(), entry.value) {
            ("unwraps", None) => panic!("no value"),
            ("slices", Some(Value::IpAddress(ip))) => {
                assert_eq!(ip.value.len(), 4, "no IPv4 address");
            }
            ("fails", None) => Err(anyhow::anyhow!("no value"))?,
            ("hangs", None) => std::future::pending().await,
            _ => {}
        }
        Ok(Check::allow())
    }
}

impl Handle<Quota> for Careless {
    async fn handle(&self, (_, request): (quota::InstanceMsg, QuotaRequest)) -> Result<Grant, AdapterError> {
        let granted =
            if self.flaw == "grants what it has" { request.amount.min(1) } else { request.amount.max(0) };
        Ok(Grant::amount(granted))
    }
}
