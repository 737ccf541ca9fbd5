//! The adapter that answers requests recorded from a real Mixer.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use mixer_adapter::{
    Adapter, AdapterError, Call, Check, Code, Context, Grant, Handle, QuotaRequest,
    adapter::{Faults, Settings},
    prost::Message,
    proto::Status,
    template::{
        ApiKey, Authorization, CheckNothing, Kubernetes, ListEntry, Metric, Quota, ReportNothing, TraceSpan,
        apikey, authorization, checknothing, kubernetes, listentry, metric, quota, reportnothing, tracespan,
    },
    value::DnsName,
};

pub use crate::params::recorded::Params;
use crate::{
    ownergen::{self, OwnerGen},
    params::recorded::params::Mode,
    tagcheck::{self, TagCheck},
};

/// The number of tests that can serve this adapter at the same time.
pub const LOGS: usize = 8;

/// Records each instance in the log with its number, one log for each test.
///
/// Checks are denied if their text is in `deny` (those without text if `mode` is ON), with `greeting` as the message and
/// `ttl` and `limit` as validity. Quotas are granted up to `limit`. Attributes are made from the instance and the
/// configuration.
#[derive(Debug)]
pub struct Recorded<const LOG: usize>(Params);

/// The instances of one call.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    /// The handler's configuration.
    pub config: Params,
    /// The full name of the instance message.
    pub message: String,
    /// The encoded instances.
    pub instances: Vec<Vec<u8>>,
    /// The quota request, in a quota call.
    pub quota: Option<QuotaRequest>,
}

static SEEN: [Mutex<Vec<Seen>>; LOGS] = [const { Mutex::new(Vec::new()) }; LOGS];

/// Takes the calls recorded in one log.
pub fn take_seen<const LOG: usize>() -> Vec<Seen> {
    std::mem::take(&mut SEEN[LOG].lock().unwrap_or_else(PoisonError::into_inner))
}

/// A configuration with a limit.
#[derive(Debug)]
pub struct RecordedSettings(Params);

impl Settings for RecordedSettings {
    type Params = Params;

    fn parse(params: Params, faults: &mut Faults<'_>) -> Option<Self> {
        faults.number("limit", params.limit).must("be positive", |limit| *limit > 0).required()?;
        Some(Self(params))
    }
}

impl<const LOG: usize> Adapter for Recorded<LOG> {
    const NAME: &str = "recorded";
    const DESCRIPTION: &str = "Answers from its configuration and its instances.";
    type Config = RecordedSettings;
    type Templates = (
        CheckNothing,
        ListEntry,
        ApiKey,
        Authorization,
        Metric,
        ReportNothing,
        TraceSpan,
        Quota,
        Kubernetes,
        OwnerGen,
        TagCheck,
    );

    async fn open(RecordedSettings(params): RecordedSettings, _: Context) -> Result<Self, AdapterError> {
        Ok(Self(params))
    }
}

impl<const LOG: usize> Recorded<LOG> {
    fn record<M: Message + mixer_adapter::prost::Name>(&self, instances: &[M], quota: Option<QuotaRequest>) {
        let instances = instances.iter().map(Message::encode_to_vec).collect();
        let seen = Seen { config: self.0.clone(), message: M::full_name(), instances, quota };
        SEEN[LOG].lock().unwrap_or_else(PoisonError::into_inner).push(seen);
    }

    fn denies(&self, text: &str) -> bool {
        self.0.deny.iter().any(|denied| denied == text)
    }

    fn ttl(&self) -> Duration {
        self.0.ttl.and_then(|ttl| ttl.try_into().ok()).unwrap_or_default()
    }

    fn check(&self, denied: bool) -> Check {
        let code = if denied { Code::PermissionDenied as i32 } else { 0 };
        let status = Status { code, message: self.0.greeting.clone(), details: Vec::new() };
        Check::from_status(status).valid_for(self.ttl()).uses(u32::try_from(self.0.limit).unwrap_or_default())
    }
}

impl<const LOG: usize> Handle<CheckNothing> for Recorded<LOG> {
    async fn handle(&self, instance: Call<checknothing::InstanceMsg>) -> Result<Check, AdapterError> {
        self.record(&[instance.into_inner()], None);
        Ok(self.check(self.0.mode() == Mode::On))
    }
}

impl<const LOG: usize> Handle<ListEntry> for Recorded<LOG> {
    async fn handle(&self, instance: Call<listentry::InstanceMsg>) -> Result<Check, AdapterError> {
        let denied = instance.value.as_ref().is_some_and(|value| self.denies(&value.to_string()));
        self.record(&[instance.into_inner()], None);
        Ok(self.check(denied))
    }
}

impl<const LOG: usize> Handle<ApiKey> for Recorded<LOG> {
    async fn handle(&self, instance: Call<apikey::InstanceMsg>) -> Result<Check, AdapterError> {
        let denied = self.denies(&instance.api_key);
        self.record(&[instance.into_inner()], None);
        Ok(self.check(denied))
    }
}

impl<const LOG: usize> Handle<Authorization> for Recorded<LOG> {
    async fn handle(&self, instance: Call<authorization::InstanceMsg>) -> Result<Check, AdapterError> {
        let denied = instance.subject.as_ref().is_some_and(|subject| self.denies(&subject.user));
        self.record(&[instance.into_inner()], None);
        Ok(self.check(denied))
    }
}

impl<const LOG: usize> Handle<Metric> for Recorded<LOG> {
    async fn handle(&self, instances: Call<Vec<metric::InstanceMsg>>) -> Result<(), AdapterError> {
        self.record(&instances, None);
        Ok(())
    }
}

impl<const LOG: usize> Handle<ReportNothing> for Recorded<LOG> {
    async fn handle(&self, instances: Call<Vec<reportnothing::InstanceMsg>>) -> Result<(), AdapterError> {
        self.record(&instances, None);
        Ok(())
    }
}

impl<const LOG: usize> Handle<TraceSpan> for Recorded<LOG> {
    async fn handle(&self, instances: Call<Vec<tracespan::InstanceMsg>>) -> Result<(), AdapterError> {
        self.record(&instances, None);
        Ok(())
    }
}

impl<const LOG: usize> Handle<Quota> for Recorded<LOG> {
    async fn handle(&self, call: Call<quota::InstanceMsg, QuotaRequest>) -> Result<Grant, AdapterError> {
        let request = call.quota().clone();
        let granted = match request.amount {
            ..=0 => 0,
            amount if amount <= self.0.limit => amount,
            _ if request.best_effort => self.0.limit,
            _ => 0,
        };
        self.record(&[call.into_inner()], Some(request));
        Ok(Grant::amount(granted).valid_for(self.ttl()))
    }
}

impl<const LOG: usize> Handle<Kubernetes> for Recorded<LOG> {
    async fn handle(
        &self,
        instance: Call<kubernetes::InstanceMsg>,
    ) -> Result<kubernetes::OutputMsg, AdapterError> {
        let instance = instance.into_inner();
        self.record(std::slice::from_ref(&instance), None);
        Ok(kubernetes::OutputMsg {
            source_pod_name: format!("{}-name", instance.source_uid),
            source_pod_ip: instance.source_ip,
            source_namespace: self.0.greeting.clone(),
            source_labels: self.0.labels.clone(),
            ..kubernetes::OutputMsg::default()
        })
    }
}

impl<const LOG: usize> Handle<OwnerGen> for Recorded<LOG> {
    async fn handle(
        &self,
        instance: Call<ownergen::InstanceMsg>,
    ) -> Result<ownergen::OutputMsg, AdapterError> {
        let instance = instance.into_inner();
        self.record(std::slice::from_ref(&instance), None);
        Ok(ownergen::OutputMsg {
            owner: format!("owner-of-{}", instance.uid),
            rank: instance.depth.saturating_add(self.0.limit),
            score: instance.weight * self.0.ratio,
            active: instance.deep && self.0.strict,
            tags: self.0.labels.clone(),
            addr: instance.r#where,
            lease: instance.span,
            host: Some(DnsName { value: format!("{}.example.com", self.0.greeting) }),
        })
    }
}

impl<const LOG: usize> Handle<TagCheck> for Recorded<LOG> {
    async fn handle(
        &self,
        instance: Call<tagcheck::InstanceMsg>,
    ) -> Result<(Check, tagcheck::OutputMsg), AdapterError> {
        let instance = instance.into_inner();
        self.record(std::slice::from_ref(&instance), None);
        let nested = instance.nested.unwrap_or_default();
        let any = instance.any.map(|any| any.to_string()).unwrap_or_default();
        let mut tags = instance.tags;
        tags.extend(self.0.labels.clone());
        let output = tagcheck::OutputMsg {
            verdict: format!("{} {any}", nested.label),
            cost: nested.count.saturating_mul(2),
            tags,
        };
        Ok((self.check(self.denies(&instance.subject)), output))
    }
}
