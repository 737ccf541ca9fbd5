//! Denies every check with a status from its configuration, and grants no quota.

use std::time::Duration;

use mixer_adapter_core::{
    Adapter, AdapterError, Call, Check, Code, Context, Grant, Handle, QuotaRequest,
    adapter::{Faults, Settings},
};
use mixer_adapter_templates::{CheckNothing, ListEntry, Quota, checknothing, listentry, quota};

mixer_adapter_core::include_proto!("adapter.denier.config");

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
    const ANSWERS_FROM_MEMORY: bool = true;
    type Config = Self;
    type Templates = (CheckNothing, ListEntry, Quota);

    async fn open(denier: Self, _: Context) -> Result<Self, AdapterError> {
        Ok(denier)
    }
}

impl Settings for Denier {
    type Params = Params;

    /// Duration and use count default to 5 s and 1000, as in the original.
    fn parse(params: Params, faults: &mut Faults<'_>) -> Option<Self> {
        let mut status = params.status.unwrap_or_default();
        // An absent code decodes as OK. A status with only a message must still deny; it had the default code in the original, too.
        if status.code == 0 {
            status.code = Code::FailedPrecondition as i32;
        }
        let valid = faults.duration("valid_duration", params.valid_duration).or(Duration::from_secs(5));
        let uses = faults.number("valid_use_count", params.valid_use_count).or(1000);
        Some(Self {
            denial: Check::from_status(status).valid_for(valid).uses(u32::try_from(uses).unwrap_or(0)),
        })
    }
}

impl Handle<CheckNothing> for Denier {
    async fn handle(&self, _: Call<checknothing::InstanceMsg>) -> Result<Check, AdapterError> {
        Ok(self.denial.clone())
    }
}

impl Handle<ListEntry> for Denier {
    async fn handle(&self, _: Call<listentry::InstanceMsg>) -> Result<Check, AdapterError> {
        Ok(self.denial.clone())
    }
}

impl Handle<Quota> for Denier {
    async fn handle(&self, _: Call<quota::InstanceMsg, QuotaRequest>) -> Result<Grant, AdapterError> {
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
        let denier: Denier = Context::detached(()).open_handler(params).await.unwrap();
        let nothing = Handle::<CheckNothing>::handle(&denier, Default::default()).await.unwrap();
        let entry = Handle::<ListEntry>::handle(&denier, Default::default()).await.unwrap();
        assert_eq!(nothing, entry);
        wire(nothing)
    }

    // TestBasic of denier_test.go: all three templates deny with the default configuration.
    #[tokio::test]
    async fn every_template_denies_by_default() {
        assert_eq!(check(Params::default()).await, (9, String::new(), 5, 1000));
        let denier: Denier = Context::detached(()).open_handler(Params::default()).await.unwrap();
        let request = QuotaRequest::new(3).with_best_effort().with_dedup_id("1");
        let grant = Handle::<Quota>::handle(&denier, Call::for_quota(quota::InstanceMsg::default(), request))
            .await
            .unwrap();
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
        let errors = Faults::parse::<Denier>(params).unwrap_err();
        assert_eq!(errors.to_string(), "valid_duration: must not be negative");
    }
}
