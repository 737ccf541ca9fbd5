use std::{collections::BTreeMap, sync::Arc};

use anyhow::{Context as _, anyhow, bail};
use prost::bytes::Bytes;
use prost_reflect::DynamicMessage;
use serde_json::Value as Json;
use tokio::{runtime::Handle, time::Instant};

use super::{
    compliance::{Form, Suite},
    instances,
};
use mixer_adapter_core::{
    framework::{
        dynamic::{DescriptorSet, DynamicTemplate},
        json::{JsonError, read_params},
    },
    proto::{Any, QuotaRequest, istio::mixer::adapter::model::v1beta1::quota_request::QuotaParams},
    template::Variety,
};
use mixer_adapter_host::{
    AccessPolicy, Host, NewSession,
    handler::{AdapterInfo, Adapters, CallError, Caller, Closing, TableLimits, TemplateInfo},
    session::SessionId,
};

/// The adapter of a suite, or a wrapper of it, in a separate host, so that rules do not affect each other.
pub(super) struct Subject<'a> {
    pub(super) host: Arc<Host>,
    pub(super) info: Arc<AdapterInfo>,
    pub(super) templates: Vec<DynamicTemplate>,
    pub(super) suite: &'a Suite<'a>,
}

/// The `adapter_config` of calls.
#[derive(Clone, Debug)]
pub(super) enum With<'a> {
    Config(&'a Any),
    Session(&'a str),
}

impl<'a> Subject<'a> {
    /// Hosts the suite's adapter, or a wrapper of it.
    pub(super) fn new(suite: &'a Suite<'a>, form: Form) -> anyhow::Result<Self> {
        let runtime = Handle::current();
        let adapters = (suite.add)(form, Adapters::builder(runtime.clone())).build()?;
        let info = adapters.find(suite.adapter).cloned().context("the adapter is not found by its name")?;
        let templates = info.templates.iter().map(|template| {
            let read = DescriptorSet::decode(template.descriptor).and_then(|set| DynamicTemplate::new(&set));
            let read = read.map_err(|error| anyhow!("the descriptor of `{}`: {error}", template.name))?;
            let described = (read.name(), read.variety(), read.method());
            if described != (template.name, template.variety, template.method) {
                let TemplateInfo { name, variety, method, .. } = template;
                bail!("`{name}` is {variety} at {method}, its descriptor has {described:?}");
            }
            Ok(read)
        });
        let templates = templates.collect::<anyhow::Result<_>>()?;
        let host = Host::new(adapters, TableLimits::default(), Closing::on(runtime));
        let host = Arc::new(host.with_access(AccessPolicy::unrestricted()));
        Ok(Self { host, info, templates, suite })
    }

    /// Encodes a configuration as the message that calls carry.
    pub(super) fn read(&self, text: &str) -> Result<Any, JsonError> {
        let json: Json = serde_saphyr::from_str(text).map_err(|error| JsonError::whole(error.to_string()))?;
        let value = read_params(&self.info.config, json)?;
        let type_url = format!("type.googleapis.com/{}", self.info.config.full_name());
        Ok(Any { type_url, value })
    }

    /// Encodes the suite's configuration.
    pub(super) fn config(&self) -> anyhow::Result<Any> {
        Ok(self.read(&self.suite.options.config)?)
    }

    /// Creates a session with a configuration and without inferred types.
    pub(super) async fn create_session(&self, config: &Any) -> Result<SessionId, CallError> {
        let new = NewSession { adapter_config: Some(config.clone()), inferred_types: BTreeMap::new() };
        self.host.create_session(new, &Self::caller()).await
    }

    /// Closes a session that [`create_session`](Self::create_session) created.
    pub(super) fn close_session(&self, id: &str) -> Result<(), CallError> {
        self.host.close_session(id, &Self::caller())
    }

    fn caller() -> Caller {
        Caller { connection: 1, ..Caller::default() }
    }

    /// Calls with an instance that has only a name.
    pub(super) async fn call(&self, template: &DynamicTemplate, with: With<'_>) -> Result<Bytes, CallError> {
        self.call_with(
            template,
            with,
            instances::empty(template.instance(), &self.suite.options.instance),
            1,
            true,
        )
        .await
    }

    /// Calls with the suite's limit as the deadline.
    pub(super) async fn call_with(
        &self,
        template: &DynamicTemplate,
        with: With<'_>,
        instance: DynamicMessage,
        amount: i64,
        best_effort: bool,
    ) -> Result<Bytes, CallError> {
        let request = self.request(template, with, instance, amount, best_effort);
        let deadline = Instant::now().checked_add(self.suite.options.patience);
        let caller = Caller { deadline, ..Self::caller() };
        self.send(template, request, caller).await
    }

    pub(super) async fn send(
        &self,
        template: &DynamicTemplate,
        request: Bytes,
        caller: Caller,
    ) -> Result<Bytes, CallError> {
        match self.host.call(template.method(), request, caller).await {
            Some(answer) => answer,
            // `new` found the same method in the descriptor as in the adapter.
            None => unreachable!("{} is not served", template.method()),
        }
    }

    pub(super) fn request(
        &self,
        template: &DynamicTemplate,
        with: With<'_>,
        instance: DynamicMessage,
        amount: i64,
        best_effort: bool,
    ) -> Bytes {
        let quotas = [(
            self.suite.options.instance.clone(),
            QuotaParams { amount, best_effort, ..QuotaParams::default() },
        )]
        .into();
        let quota = (template.variety() == Variety::Quota).then_some(QuotaRequest { quotas });
        let config = match with {
            With::Config(config) => config.clone(),
            With::Session(id) => {
                Any { type_url: "google.protobuf.Any.type_url".to_owned(), value: id.to_owned().into() }
            }
        };
        template.request(vec![instance], Some(&config), quota.as_ref()).with_dedup_id("1")
    }

    /// Closes all handlers and returns how many are still open at the suite's limit.
    pub(super) async fn close(&self) -> usize {
        self.host.close(self.suite.options.patience).await
    }
}
