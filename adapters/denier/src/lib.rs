//! Denies every check with a status from its configuration, and grants no quota.

use std::time::Duration;

use mixer_adapter_core::{
    Adapter, AdapterError, Check, Code, Grant, Handle, QuotaRequest,
    adapter::{ConfigErrors, InferredTypes},
};
use mixer_adapter_templates::{CheckNothing, ListEntry, Quota, checknothing, listentry, quota};

mod config {
    #![allow(missing_docs, unreachable_pub)]
    mixer_adapter_core::include_proto!("adapter.denier.config");
}

pub use config::Params;

/// The handler: the denial that it answers.
#[derive(Debug)]
pub struct Denier {
    denial: Check,
}

impl Adapter for Denier {
    const NAME: &str = "denier";
    const DESCRIPTION: &str = "Denies every check with a fixed status.";
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    const EXAMPLE: &str = include_str!("../example.yaml");
    type Config = Params;
    type Templates = (CheckNothing, ListEntry, Quota);

    async fn open(params: Params) -> Result<Self, AdapterError> {
        Ok(Self { denial: denial(params)? })
    }

    fn validate(params: &Params, _: &InferredTypes) -> Result<(), ConfigErrors> {
        denial(params.clone()).map(drop)
    }
}

/// Makes the denial of a configuration. Duration and use count default to 5 s and 1000, as in [`Check`] and in
/// the original.
fn denial(params: Params) -> Result<Check, ConfigErrors> {
    let mut status = params.status.unwrap_or_default();
    // An absent code decodes as OK. A status with only a message must still deny; it had the default code in the original, too.
    if status.code == 0 {
        status.code = Code::FailedPrecondition as i32;
    }
    let mut denial = Check::from_status(status);
    if let Some(valid) = params.valid_duration {
        let valid = Duration::try_from(valid)
            .map_err(|_| ConfigErrors::single("valid_duration", "must not be negative"))?;
        denial = denial.valid_for(valid);
    }
    if let Some(uses) = params.valid_use_count {
        denial = denial.uses(u32::try_from(uses).unwrap_or(0));
    }
    Ok(denial)
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
    async fn handle(&self, _: (quota::InstanceMsg, QuotaRequest)) -> Result<Grant, AdapterError> {
        Ok(Grant::nothing())
    }
}

#[cfg(test)]
mixer_adapter::testing::compliance!(Denier, refuses("valid_duration", "valid_duration: -1s"));

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use mixer_adapter_core::{
        prost_types,
        proto::{CheckResult, Status},
    };

    use super::*;

    fn status(code: i32, message: &str) -> Option<Status> {
        Some(Status { code, message: message.to_owned(), details: Vec::new() })
    }

    fn seconds(seconds: i64) -> Option<prost_types::Duration> {
        Some(prost_types::Duration { seconds, nanos: 0 })
    }

    /// The answer as sent to Mixer: code, message, seconds and uses.
    fn wire(check: Check) -> (i32, String, i64, i32) {
        let CheckResult { status, valid_duration, valid_use_count } = check.into();
        let status = status.unwrap();
        (status.code, status.message, valid_duration.unwrap().seconds, valid_use_count)
    }

    async fn check(params: Params) -> (i32, String, i64, i32) {
        let denier = Denier::open(params).await.unwrap();
        let nothing = Handle::<CheckNothing>::handle(&denier, Default::default()).await.unwrap();
        let entry = Handle::<ListEntry>::handle(&denier, Default::default()).await.unwrap();
        assert_eq!(nothing, entry);
        wire(nothing)
    }

    // TestBasic of denier_test.go: all three templates deny with the default configuration.
    #[tokio::test]
    async fn every_template_denies_by_default() {
        assert_eq!(check(Params::default()).await, (9, String::new(), 5, 1000));
        let denier = Denier::open(Params::default()).await.unwrap();
        let request = QuotaRequest::new(3).with_best_effort().with_dedup_id("1");
        let grant = Handle::<Quota>::handle(&denier, (Default::default(), request)).await.unwrap();
        assert_eq!(grant, Grant::nothing());
        denier.close().await;
    }

    #[tokio::test]
    async fn denies_with_the_configured_status() {
        let params =
            Params { status: status(7, "go away"), valid_duration: seconds(60), valid_use_count: Some(1) };
        assert_eq!(check(params).await, (7, "go away".to_owned(), 60, 1));
    }

    #[tokio::test]
    async fn a_status_without_a_code_still_denies() {
        let params = Params { status: status(0, "go away"), ..Params::default() };
        assert_eq!(check(params).await, (9, "go away".to_owned(), 5, 1000));
    }

    #[tokio::test]
    async fn zero_is_not_absent_and_forbids_caching() {
        let uncached = (9, String::new(), 0, -1);
        assert_eq!(check(Params { valid_duration: seconds(0), ..Params::default() }).await, uncached);
        assert_eq!(check(Params { valid_use_count: Some(0), ..Params::default() }).await, uncached);
        assert_eq!(check(Params { valid_use_count: Some(-1), ..Params::default() }).await, uncached);
    }

    #[test]
    fn a_negative_duration_is_refused() {
        let params = Params { valid_duration: seconds(-1), ..Params::default() };
        let errors = Denier::validate(&params, &InferredTypes::default()).unwrap_err();
        assert_eq!(errors.to_string(), "valid_duration: must not be negative");
    }
}
