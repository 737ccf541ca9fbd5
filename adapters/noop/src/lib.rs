//! Allows every check, accepts every report and grants every quota, for tests of the environment of an adapter.

use std::time::Duration;

use mixer_adapter_core::{Adapter, AdapterError, Call, Check, Context, Grant, Handle, QuotaRequest};
use mixer_adapter_templates::{
    Authorization, CheckNothing, ListEntry, LogEntry, Metric, Quota, ReportNothing, TraceSpan, authorization,
    checknothing, listentry, logentry, metric, quota, reportnothing, tracespan,
};

mixer_adapter_core::include_proto!("adapter.noop.config");

/// The validity of answers (docs/behaviour/adapters.md#noop).
const VALIDITY: Duration = Duration::from_secs(1_000_000_000);
const USES: u32 = 1_000_000_000;

/// The handler, without state.
#[derive(Debug)]
pub struct Noop;

impl Adapter for Noop {
    const NAME: &str = "noop";
    const DESCRIPTION: &str = "Admits, takes and grants everything.";
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    const ANSWERS_FROM_MEMORY: bool = true;
    type Config = Params;
    type Templates =
        (Authorization, CheckNothing, ReportNothing, ListEntry, LogEntry, Metric, Quota, TraceSpan);

    async fn open(_: Params, _: Context) -> Result<Self, AdapterError> {
        Ok(Self)
    }
}

fn allowed() -> Check {
    Check::allow().valid_for(VALIDITY).uses(USES)
}

impl Handle<Authorization> for Noop {
    async fn handle(&self, _: Call<authorization::InstanceMsg>) -> Result<Check, AdapterError> {
        Ok(allowed())
    }
}

impl Handle<CheckNothing> for Noop {
    async fn handle(&self, _: Call<checknothing::InstanceMsg>) -> Result<Check, AdapterError> {
        Ok(allowed())
    }
}

impl Handle<ListEntry> for Noop {
    async fn handle(&self, _: Call<listentry::InstanceMsg>) -> Result<Check, AdapterError> {
        Ok(allowed())
    }
}

impl Handle<Quota> for Noop {
    async fn handle(&self, call: Call<quota::InstanceMsg, QuotaRequest>) -> Result<Grant, AdapterError> {
        // A release requests a negative amount; the answer is the amount released.
        Ok(Grant::amount(call.quota().amount.saturating_abs()).valid_for(VALIDITY))
    }
}

impl Handle<ReportNothing> for Noop {
    async fn handle(&self, _: Call<Vec<reportnothing::InstanceMsg>>) -> Result<(), AdapterError> {
        Ok(())
    }
}

impl Handle<LogEntry> for Noop {
    async fn handle(&self, _: Call<Vec<logentry::InstanceMsg>>) -> Result<(), AdapterError> {
        Ok(())
    }
}

impl Handle<Metric> for Noop {
    async fn handle(&self, _: Call<Vec<metric::InstanceMsg>>) -> Result<(), AdapterError> {
        Ok(())
    }
}

impl Handle<TraceSpan> for Noop {
    async fn handle(&self, _: Call<Vec<tracespan::InstanceMsg>>) -> Result<(), AdapterError> {
        Ok(())
    }
}

#[cfg(test)]
mixer_adapter::testing::compliance!(Noop);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use mixer_adapter_core::{proto::CheckResult, template::Template};

    use super::*;

    async fn checks<T>()
    where
        T: Template<Input: Default, Answer = Check>,
        Noop: Handle<T>,
    {
        let result = CheckResult::from(Handle::<T>::handle(&Noop, T::Input::default()).await.unwrap());
        assert_eq!(result.status.unwrap().code, 0, "{}", T::NAME);
        assert_eq!(result.valid_duration.unwrap().seconds, 1_000_000_000, "{}", T::NAME);
        assert_eq!(result.valid_use_count, 1_000_000_000, "{}", T::NAME);
    }

    async fn reports<T>()
    where
        T: Template<Input = Call<Vec<<T as Template>::Instance>>, Answer = ()>,
        Noop: Handle<T>,
    {
        Handle::<T>::handle(&Noop, T::Input::default()).await.unwrap();
        Handle::<T>::handle(&Noop, Call::new(vec![T::Instance::default()])).await.unwrap();
    }

    // TestBasic of noop_test.go, and the values of docs/behaviour/adapters.md#noop.
    #[tokio::test]
    async fn every_check_is_allowed() {
        checks::<Authorization>().await;
        checks::<CheckNothing>().await;
        checks::<ListEntry>().await;
    }

    #[tokio::test]
    async fn every_report_is_accepted() {
        reports::<ReportNothing>().await;
        reports::<LogEntry>().await;
        reports::<Metric>().await;
        reports::<TraceSpan>().await;
    }

    #[tokio::test]
    async fn quota_is_granted_and_released_as_requested() {
        for (amount, granted) in [(0, 0), (7, 7), (-7, 7), (i64::MIN, i64::MAX)] {
            let call = Call::for_quota(quota::InstanceMsg::default(), amount);
            let grant = Handle::<Quota>::handle(&Noop, call).await.unwrap();
            assert_eq!(grant.granted(), granted);
            assert_eq!(grant.valid_duration(), Duration::from_secs(1_000_000_000));
        }
    }
}
