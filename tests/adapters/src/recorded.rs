//! The adapter that answers requests recorded from a real Mixer, in all standard templates and two of its own.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use mixer_adapter::{
    Adapter, AdapterError, Call, Check, Code, Context, Grant, Handle, QuotaRequest,
    adapter::{Faults, Settings},
    prost::Message,
    proto::Status,
    template::{
        ApiKey, Authorization, CheckNothing, Edge, Kubernetes, ListEntry, LogEntry, Metric, Quota,
        ReportNothing, TraceSpan, apikey, authorization, checknothing, edge, kubernetes, listentry, logentry,
        metric, quota, reportnothing, tracespan,
    },
    value::DnsName,
};

pub use crate::params::recorded::Params;
use crate::{
    ownergen::{self, OwnerGen},
    params::recorded::params::Mode,
    tagcheck::{self, TagCheck},
};

/// Records each call in the state of the program.
///
/// Checks are denied if their text is in `deny` (those without text if `mode` is ON), with `greeting` as the message and
/// `ttl` and `limit` as validity. Quotas are granted up to `limit`. Attributes are made from the instance and the
/// configuration.
#[derive(Debug)]
pub struct Recorded {
    params: Params,
    record: Arc<dyn Record>,
}

/// Where calls are recorded.
pub trait Record: fmt::Debug + Send + Sync + 'static {
    /// Records one call.
    fn record(&self, call: Seen);
}

/// Records nothing.
impl Record for () {
    fn record(&self, _: Seen) {}
}

/// The calls since they were last taken.
#[derive(Debug, Default)]
pub struct Calls(Mutex<Vec<Seen>>);

impl Calls {
    /// Takes the recorded calls.
    pub fn take(&self) -> Vec<Seen> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Record for Calls {
    fn record(&self, call: Seen) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(call);
    }
}

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

impl<S: Record> Adapter<S> for Recorded {
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
        LogEntry,
        Edge,
        Quota,
        Kubernetes,
        OwnerGen,
        TagCheck,
    );

    async fn open(
        RecordedSettings(params): RecordedSettings,
        context: Context<S>,
    ) -> Result<Self, AdapterError> {
        Ok(Self { params, record: context.state().clone() })
    }
}

impl Recorded {
    fn record<M: Message + mixer_adapter::prost::Name>(&self, instances: &[M], quota: Option<QuotaRequest>) {
        let instances = instances.iter().map(Message::encode_to_vec).collect();
        self.record.record(Seen { config: self.params.clone(), message: M::full_name(), instances, quota });
    }

    fn denies(&self, text: &str) -> bool {
        self.params.deny.iter().any(|denied| denied == text)
    }

    fn ttl(&self) -> Duration {
        self.params.ttl.and_then(|ttl| ttl.try_into().ok()).unwrap_or_default()
    }

    fn check(&self, denied: bool) -> Check {
        let code = if denied { Code::PermissionDenied as i32 } else { 0 };
        let status = Status { code, message: self.params.greeting.clone(), details: Vec::new() };
        Check::from_status(status)
            .valid_for(self.ttl())
            .uses(u32::try_from(self.params.limit).unwrap_or_default())
    }
}

impl Handle<CheckNothing> for Recorded {
    async fn handle(&self, instance: Call<checknothing::InstanceMsg>) -> Result<Check, AdapterError> {
        self.record(&[instance.into_inner()], None);
        Ok(self.check(self.params.mode() == Mode::On))
    }
}

impl Handle<ListEntry> for Recorded {
    async fn handle(&self, instance: Call<listentry::InstanceMsg>) -> Result<Check, AdapterError> {
        let denied = instance.value.as_ref().is_some_and(|value| self.denies(&value.to_string()));
        self.record(&[instance.into_inner()], None);
        Ok(self.check(denied))
    }
}

impl Handle<ApiKey> for Recorded {
    async fn handle(&self, instance: Call<apikey::InstanceMsg>) -> Result<Check, AdapterError> {
        let denied = self.denies(&instance.api_key);
        self.record(&[instance.into_inner()], None);
        Ok(self.check(denied))
    }
}

impl Handle<Authorization> for Recorded {
    async fn handle(&self, instance: Call<authorization::InstanceMsg>) -> Result<Check, AdapterError> {
        let denied = instance.subject.as_ref().is_some_and(|subject| self.denies(&subject.user));
        self.record(&[instance.into_inner()], None);
        Ok(self.check(denied))
    }
}

impl Handle<Metric> for Recorded {
    async fn handle(&self, instances: Call<Vec<metric::InstanceMsg>>) -> Result<(), AdapterError> {
        self.record(&instances, None);
        Ok(())
    }
}

impl Handle<ReportNothing> for Recorded {
    async fn handle(&self, instances: Call<Vec<reportnothing::InstanceMsg>>) -> Result<(), AdapterError> {
        self.record(&instances, None);
        Ok(())
    }
}

impl Handle<TraceSpan> for Recorded {
    async fn handle(&self, instances: Call<Vec<tracespan::InstanceMsg>>) -> Result<(), AdapterError> {
        self.record(&instances, None);
        Ok(())
    }
}

impl Handle<LogEntry> for Recorded {
    async fn handle(&self, instances: Call<Vec<logentry::InstanceMsg>>) -> Result<(), AdapterError> {
        self.record(&instances, None);
        Ok(())
    }
}

impl Handle<Edge> for Recorded {
    async fn handle(&self, instances: Call<Vec<edge::InstanceMsg>>) -> Result<(), AdapterError> {
        self.record(&instances, None);
        Ok(())
    }
}

impl Handle<Quota> for Recorded {
    async fn handle(&self, call: Call<quota::InstanceMsg, QuotaRequest>) -> Result<Grant, AdapterError> {
        let request = call.quota().clone();
        let granted = match request.amount {
            ..=0 => 0,
            amount if amount <= self.params.limit => amount,
            _ if request.best_effort => self.params.limit,
            _ => 0,
        };
        self.record(&[call.into_inner()], Some(request));
        Ok(Grant::amount(granted).valid_for(self.ttl()))
    }
}

impl Handle<Kubernetes> for Recorded {
    async fn handle(
        &self,
        instance: Call<kubernetes::InstanceMsg>,
    ) -> Result<kubernetes::OutputMsg, AdapterError> {
        let instance = instance.into_inner();
        self.record(std::slice::from_ref(&instance), None);
        Ok(kubernetes::OutputMsg {
            source_pod_name: format!("{}-name", instance.source_uid),
            source_pod_ip: instance.source_ip,
            source_namespace: self.params.greeting.clone(),
            source_labels: self.params.labels.clone(),
            ..kubernetes::OutputMsg::default()
        })
    }
}

impl Handle<OwnerGen> for Recorded {
    async fn handle(
        &self,
        instance: Call<ownergen::InstanceMsg>,
    ) -> Result<ownergen::OutputMsg, AdapterError> {
        let instance = instance.into_inner();
        self.record(std::slice::from_ref(&instance), None);
        Ok(ownergen::OutputMsg {
            owner: format!("owner-of-{}", instance.uid),
            rank: instance.depth.saturating_add(self.params.limit),
            score: instance.weight * self.params.ratio,
            active: instance.deep && self.params.strict,
            tags: self.params.labels.clone(),
            addr: instance.r#where,
            lease: instance.span,
            host: Some(DnsName { value: format!("{}.example.com", self.params.greeting) }),
        })
    }
}

impl Handle<TagCheck> for Recorded {
    async fn handle(
        &self,
        instance: Call<tagcheck::InstanceMsg>,
    ) -> Result<(Check, tagcheck::OutputMsg), AdapterError> {
        let instance = instance.into_inner();
        self.record(std::slice::from_ref(&instance), None);
        let nested = instance.nested.unwrap_or_default();
        let any = instance.any.map(|any| any.to_string()).unwrap_or_default();
        let mut tags = instance.tags;
        tags.extend(self.params.labels.clone());
        let output = tagcheck::OutputMsg {
            verdict: format!("{} {any}", nested.label),
            cost: nested.count.saturating_mul(2),
            tags,
        };
        Ok((self.check(self.denies(&instance.subject)), output))
    }
}
