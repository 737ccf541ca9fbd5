//! Denies every check with a status from its configuration, and grants no quota.

use std::time::Duration;

use mixer_adapter::{
    Adapter, AdapterError, Check, Code, Grant, Handle, QuotaArgs,
    adapter::{ConfigErrors, InferredTypes},
    proto::Status,
    template::{CheckNothing, ListEntry, Quota, checknothing, listentry, quota},
};

mod config {
    #![allow(missing_docs, unreachable_pub)]
    mixer_adapter::include_proto!("adapter.denier.config");
}

pub use config::Params;

/// The handler: what it answers.
#[derive(Debug)]
pub struct Denier {
    denial: Check,
}

impl Adapter for Denier {
    const NAME: &str = "denier";
    const DESCRIPTION: &str = "Denies every check with a fixed status.";
    type Config = Params;
    type Templates = (CheckNothing, ListEntry, Quota);

    async fn open(params: Params) -> Result<Self, AdapterError> {
        let status = params
            .status
            .unwrap_or_else(|| Status { code: Code::FailedPrecondition as i32, ..Status::default() });
        let mut denial = Check::from_status(status);
        if let Some(valid) = params.valid_duration {
            denial = denial.for_(Duration::try_from(valid).unwrap_or_default());
        }
        if let Some(uses) = params.valid_use_count {
            denial = denial.uses(u32::try_from(uses).unwrap_or_default());
        }
        Ok(Self { denial })
    }

    fn validate(params: &Params, _: &InferredTypes) -> Result<(), ConfigErrors> {
        let mut errors = ConfigErrors::default();
        if params.valid_duration.is_some_and(|valid| Duration::try_from(valid).is_err()) {
            errors.refuse("valid_duration", "must not be negative");
        }
        errors.into_result()
    }
}

impl Handle<CheckNothing> for Denier {
    async fn handle(&self, _: checknothing::InstanceMsg) -> Result<Check, AdapterError> {
        Ok(self.denial.clone())
    }
}

impl Handle<ListEntry> for Denier {
    async fn handle(&self, _: listentry::InstanceMsg) -> Result<Check, AdapterError> {
        Ok(self.denial.clone())
    }
}

impl Handle<Quota> for Denier {
    async fn handle(&self, _: (quota::InstanceMsg, QuotaArgs)) -> Result<Grant, AdapterError> {
        Ok(Grant::nothing())
    }
}
