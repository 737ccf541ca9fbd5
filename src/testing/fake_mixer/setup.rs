use std::{collections::BTreeMap, fmt, marker::PhantomData, sync::Arc};

use serde_json::json;
use tokio::runtime::Handle as Runtime;

use super::{
    FakeHandler, FakeMixer, IntoParams,
    resources::{self, NAMESPACE, resource},
};
use mixer_adapter_config::{self as config, Kind, Resource, ValidationError};
use mixer_adapter_core::{adapter::Adapter, template::Template, value::ValueType};
use mixer_adapter_engine::build::BuildOptions;
use mixer_adapter_host::{
    AccessPolicy, Host,
    handler::{Adapters, AdaptersBuilder, Closing, StartError, TableLimits},
};

/// The builder of a fake Mixer. [`handler`](Self::handler) adds handlers of `A`, the last added adapter.
///
/// Resources without a namespace are in `istio-system`, whose rules apply to every request.
#[must_use = "a fake Mixer runs after `start`"]
pub struct Setup<A, S = ()> {
    parts: Parts,
    adapter: PhantomData<fn() -> (A, S)>,
}

/// Adds an adapter to a set.
type AddAdapter = Box<dyn Fn(AdaptersBuilder) -> AdaptersBuilder + Send + Sync>;

#[derive(Default)]
struct Parts {
    adapters: BTreeMap<&'static str, AddAdapter>,
    templates: BTreeMap<&'static str, &'static [u8]>,
    attributes: BTreeMap<String, ValueType>,
    resources: Vec<Arc<Resource>>,
    faults: Vec<ValidationError>,
    rules: usize,
    sessions: bool,
    address: Option<String>,
    options: BuildOptions,
}

/// The adapter of a [`Setup`] without adapters.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum NoAdapter {}

/// A configuration with errors.
#[derive(Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub struct RejectedConfigError {
    /// All faults of the configuration, including warnings.
    pub faults: Vec<ValidationError>,
}

impl fmt::Display for RejectedConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the configuration is rejected:")?;
        self.faults.iter().try_for_each(|fault| write!(f, "\n  {fault}"))
    }
}

impl fmt::Debug for RejectedConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<StartError> for RejectedConfigError {
    fn from(error: StartError) -> Self {
        Self { faults: vec![ValidationError::error(error.to_string())] }
    }
}

impl Setup<NoAdapter> {
    pub(super) fn new() -> Self {
        Self { parts: Parts::default(), adapter: PhantomData }
    }
}

impl<A: Adapter<S>, S> Setup<A, S> {
    /// Adds a handler: the last added adapter with a configuration.
    #[track_caller]
    pub fn handler(mut self, name: &str, params: impl IntoParams) -> Self {
        let spec = json!({
            "adapter": A::NAME,
            "params": params.into_params().into_json(),
            // Never used: the adapter is in the process.
            "connection": { "address": "in-process:1" },
        });
        self.parts.resources.push(resource(Kind::Handler, name, spec).into());
        self
    }

    /// Opens a handler for direct calls, without rules, attributes and expressions. Of the other settings only the added
    /// adapters have an effect.
    ///
    /// # Panics
    /// If the adapters conflict, or outside of a tokio runtime.
    #[track_caller]
    pub fn params(self, params: impl IntoParams) -> FakeHandler {
        match self.host() {
            Ok(host) => FakeHandler::new(host, params.into_params().into_config(A::NAME)),
            Err(error) => panic!("{error}"),
        }
    }
}

impl<A, S> fmt::Debug for Setup<A, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Setup").field("resources", &self.parts.resources).finish_non_exhaustive()
    }
}

impl<A, S> Setup<A, S> {
    /// Adds an in-process adapter.
    pub fn and<B: Adapter>(self) -> Setup<B> {
        self.and_with(())
    }

    /// Adds an in-process adapter with the state of a program, of which a test replaces parts.
    pub fn and_with<B: Adapter<T>, T: Send + Sync + 'static>(mut self, state: T) -> Setup<B, T> {
        let state = Arc::new(state);
        let add: AddAdapter = Box::new(move |builder| builder.add_with::<B, T>(state.clone()));
        self.parts.adapters.insert(B::NAME, add);
        Setup { parts: self.parts, adapter: PhantomData }
    }

    /// Adds an instance: an expression for each field of the template.
    #[track_caller]
    pub fn instance<T: Template>(mut self, name: &str, params: impl IntoParams) -> Self {
        self.parts.templates.insert(T::NAME, T::DESCRIPTOR);
        let spec = json!({ "template": T::NAME, "params": params.into_params().into_json() });
        self.parts.resources.push(resource(Kind::Instance, name, spec).into());
        self
    }

    /// Adds a rule: if the condition (an expression; `true` for all requests) is true, these instances go to the handler.
    pub fn rule<'i>(
        mut self,
        condition: &str,
        handler: &str,
        instances: impl IntoIterator<Item = &'i str>,
    ) -> Self {
        self.parts.rules += 1;
        let instances: Vec<&str> = instances.into_iter().collect();
        let spec = json!({ "match": condition, "actions": [{ "handler": handler, "instances": instances }] });
        let name = format!("rule-{}", self.parts.rules);
        self.parts.resources.push(resource(Kind::Rule, &name, spec).into());
        self
    }

    /// Declares an attribute besides the standard ones.
    pub fn attribute(mut self, name: &str, value_type: ValueType) -> Self {
        self.parts.attributes.insert(name.to_owned(), value_type);
        self
    }

    /// Adds resources in YAML or JSON, as for a real Mixer. Handlers of the adapters under test call these, whatever their
    /// connection, and need no `template` and `adapter` resources. Handlers of other adapters call the addresses of their
    /// connections.
    pub fn config(mut self, text: &str) -> Self {
        let parsed = config::parse(text, "the test", NAMESPACE);
        self.parts.faults.extend(parsed.faults);
        self.parts.resources.extend(parsed.resources);
        self
    }

    /// Adds a resource.
    pub fn resource(mut self, resource: Resource) -> Self {
        self.parts.resources.push(resource.into());
        self
    }

    /// Uses sessions in place of sending the configuration with each call.
    pub fn sessions(mut self) -> Self {
        self.parts.sessions = true;
        self
    }

    /// Calls the adapters under test at `host:port` and not in the process.
    pub fn at(mut self, address: impl ToString) -> Self {
        self.parts.address = Some(address.to_string());
        self
    }

    /// Sets the options for building the configuration.
    pub fn options(mut self, options: BuildOptions) -> Self {
        self.parts.options = options;
        self
    }

    /// Starts the engine on the current tokio runtime.
    ///
    /// # Errors
    /// If the configuration has errors.
    pub async fn start(self) -> Result<FakeMixer, RejectedConfigError> {
        let host = self.host()?;
        let Parts { templates, attributes, resources, faults, sessions, address, options, .. } = self.parts;
        let mut base = resources::manifest(host.adapters(), sessions);
        base.extend(templates.into_iter().map(|(name, descriptor)| resources::template(name, descriptor)));
        if !attributes.is_empty() {
            base.push(resources::attributes(&attributes));
        }
        let mixer = FakeMixer::new(host, base, address, options);
        mixer.configure(resources, faults).await?;
        Ok(mixer)
    }

    fn host(&self) -> Result<Arc<Host>, StartError> {
        let runtime = Runtime::current();
        let builder = Adapters::builder(runtime.clone());
        let adapters = self.parts.adapters.values().fold(builder, |builder, add| add(builder)).build()?;
        let host = Host::new(adapters, TableLimits::default(), Closing::on(runtime));
        Ok(Arc::new(host.with_access(AccessPolicy::unrestricted())))
    }
}
