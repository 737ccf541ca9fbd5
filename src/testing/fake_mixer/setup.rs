use std::{collections::BTreeMap, fmt, marker::PhantomData, sync::Arc};

use serde_json::json;
use tokio::runtime::Handle as Runtime;

use super::{
    FakeHandler, FakeMixer, IntoParams,
    resources::{self, NAMESPACE, resource},
};
use mixer_adapter_config::{self as config, Fault, Kind, Resource};
use mixer_adapter_core::{adapter::Adapter, template::Template, value::ValueType};
use mixer_adapter_engine::build::BuildOptions;
use mixer_adapter_host::{
    Host,
    handler::{Adapters, AdaptersBuilder, Closing, StartError, TableLimits},
};

/// A fake Mixer being put together. `A` is the adapter named last: handlers are made of it.
///
/// Whatever names no namespace is in `istio-system`, whose rules apply to every request.
#[must_use = "nothing runs before `start`"]
pub struct Setup<A> {
    adapters: BTreeMap<&'static str, fn(AdaptersBuilder) -> AdaptersBuilder>,
    templates: BTreeMap<&'static str, &'static [u8]>,
    attributes: BTreeMap<String, ValueType>,
    resources: Vec<Resource>,
    faults: Vec<Fault>,
    rules: usize,
    pub(super) sessions: bool,
    pub(super) address: Option<String>,
    pub(super) options: BuildOptions,
    adapter: PhantomData<fn() -> A>,
}

/// Stands for an adapter where none was named.
#[derive(Clone, Copy, Debug)]
pub enum NoAdapter {}

/// Why a fake Mixer does not take its configuration.
#[derive(Clone, PartialEq, thiserror::Error)]
pub struct Refused {
    /// Everything that is wrong with it, warnings too.
    pub faults: Vec<Fault>,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the configuration is refused:")?;
        self.faults.iter().try_for_each(|fault| write!(f, "\n  {fault}"))
    }
}

impl fmt::Debug for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<StartError> for Refused {
    fn from(error: StartError) -> Self {
        Self { faults: vec![Fault::error(error.to_string())] }
    }
}

impl Setup<NoAdapter> {
    pub(super) fn new() -> Self {
        Self {
            adapters: BTreeMap::new(),
            templates: BTreeMap::new(),
            attributes: BTreeMap::new(),
            resources: Vec::new(),
            faults: Vec::new(),
            rules: 0,
            sessions: false,
            address: None,
            options: BuildOptions { default_namespace: NAMESPACE.to_owned(), ..BuildOptions::default() },
            adapter: PhantomData,
        }
    }
}

impl<A: Adapter> Setup<A> {
    /// A handler: the adapter named last, with that configuration.
    #[track_caller]
    pub fn handler(mut self, name: &str, params: impl IntoParams) -> Self {
        let spec = json!({
            "adapter": A::NAME,
            "params": params.into_params().into_json(),
            // Nobody listens there: the adapter is in the process.
            "connection": { "address": "in-process:1" },
        });
        self.resources.push(resource(Kind::Handler, name, spec));
        self
    }

    /// A handler alone: calls that go straight to it, without rules, attributes and expressions. What else was set up plays
    /// no part, but for other adapters, which are in the process too.
    ///
    /// # Panics
    /// If the adapters cannot be in one process, or outside of a tokio runtime.
    #[track_caller]
    pub fn params(self, params: impl IntoParams) -> FakeHandler {
        match self.host() {
            Ok(host) => FakeHandler::new(host, params.into_params().into_config(A::NAME)),
            Err(error) => panic!("{error}"),
        }
    }
}

impl<A> Setup<A> {
    /// One more adapter in the process.
    pub fn and<B: Adapter>(mut self) -> Setup<B> {
        self.adapters.insert(B::NAME, AdaptersBuilder::add::<B>);
        let Self {
            adapters,
            templates,
            attributes,
            resources,
            faults,
            rules,
            sessions,
            address,
            options,
            ..
        } = self;
        let adapter = PhantomData;
        Setup {
            adapters,
            templates,
            attributes,
            resources,
            faults,
            rules,
            sessions,
            address,
            options,
            adapter,
        }
    }

    /// An instance: what the template's fields are made of, each an expression.
    #[track_caller]
    pub fn instance<T: Template>(mut self, name: &str, params: impl IntoParams) -> Self {
        self.templates.insert(T::NAME, T::DESCRIPTOR);
        let spec = json!({ "template": T::NAME, "params": params.into_params().into_json() });
        self.resources.push(resource(Kind::Instance, name, spec));
        self
    }

    /// A rule: for requests that meet the condition (an expression; `true` for all), these instances go to that handler.
    pub fn rule<'i>(
        mut self,
        condition: &str,
        handler: &str,
        instances: impl IntoIterator<Item = &'i str>,
    ) -> Self {
        self.rules += 1;
        let instances: Vec<&str> = instances.into_iter().collect();
        let spec = json!({ "match": condition, "actions": [{ "handler": handler, "instances": instances }] });
        self.resources.push(resource(Kind::Rule, &format!("rule-{}", self.rules), spec));
        self
    }

    /// An attribute besides the standard ones.
    pub fn attribute(mut self, name: &str, value_type: ValueType) -> Self {
        self.attributes.insert(name.to_owned(), value_type);
        self
    }

    /// Resources in YAML or JSON, as they are given to a real Mixer. Handlers of the adapters under test call those
    /// whatever address they name, and without TLS; the `template` and `adapter` resources of these are there. Handlers of
    /// other adapters call the addresses that they name.
    pub fn config(mut self, text: &str) -> Self {
        let parsed = config::parse(text, "the test", NAMESPACE);
        self.faults.extend(parsed.faults);
        self.resources.extend(parsed.resources);
        self
    }

    /// A resource.
    pub fn resource(mut self, resource: Resource) -> Self {
        self.resources.push(resource);
        self
    }

    /// Adapters get their configuration by sessions, and not with each call.
    pub fn sessions(mut self) -> Self {
        self.sessions = true;
        self
    }

    /// The adapters under test run there, `host:port`, and not in the process.
    pub fn at(mut self, address: impl ToString) -> Self {
        self.address = Some(address.to_string());
        self
    }

    /// How the configuration is treated, and failures.
    pub fn options(mut self, options: BuildOptions) -> Self {
        self.options = options;
        self
    }

    /// Starts the engine. Must be called within a tokio runtime, which everything runs on.
    pub async fn start(mut self) -> Result<FakeMixer, Refused> {
        let host = self.host()?;
        let mut standing = resources::manifest(host.adapters(), self.sessions);
        let more = std::mem::take(&mut self.templates).into_iter();
        standing.extend(more.map(|(name, descriptor)| resources::template(name, descriptor)));
        if !self.attributes.is_empty() {
            standing.push(resources::attributes(&self.attributes));
        }
        let (resources, faults) = (std::mem::take(&mut self.resources), std::mem::take(&mut self.faults));
        let mixer = FakeMixer::new(host, standing, self.address, self.options);
        mixer.configure(resources, faults).await?;
        Ok(mixer)
    }

    fn host(&self) -> Result<Arc<Host>, StartError> {
        let runtime = Runtime::current();
        let builder = Adapters::builder(runtime.clone());
        let adapters = self.adapters.values().fold(builder, |builder, add| add(builder)).build()?;
        Ok(Arc::new(Host::new(adapters, TableLimits::default(), Closing::on(runtime))))
    }
}
