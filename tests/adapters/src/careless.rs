//! An adapter with defects, for the compliance suite.

use mixer_adapter::{
    Adapter, AdapterError, Call, Check, Context, Grant, Handle, QuotaRequest,
    adapter::{Faults, Settings},
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

/// A size up to 9, and one that `open` refuses.
#[derive(Debug)]
pub struct CarelessSettings(Params);

impl Settings for CarelessSettings {
    type Params = Params;

    fn parse(params: Params, faults: &mut Faults<'_>) -> Option<Self> {
        if params.size >= 10 && params.size != 20 {
            faults.push("size", "must be below 10");
        }
        Some(Self(params))
    }
}

impl Adapter for Careless {
    const NAME: &str = "careless";
    const DESCRIPTION: &str = "Has the flaw named in its configuration.";
    type Config = CarelessSettings;
    type Templates = (ListEntry, Quota);

    async fn open(CarelessSettings(params): CarelessSettings, _: Context) -> Result<Self, AdapterError> {
        if params.size == 20 {
            return Err(AdapterError::invalid("too large"));
        }
        Ok(Self { flaw: params.flaw })
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
    async fn handle(&self, entry: Call<listentry::InstanceMsg>) -> Result<Check, AdapterError> {
        match (self.flaw.as_str(), entry.into_inner().value) {
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
    async fn handle(&self, call: Call<quota::InstanceMsg, QuotaRequest>) -> Result<Grant, AdapterError> {
        let request = call.quota();
        let granted =
            if self.flaw == "grants what it has" { request.amount.min(1) } else { request.amount.max(0) };
        Ok(Grant::amount(granted))
    }
}
