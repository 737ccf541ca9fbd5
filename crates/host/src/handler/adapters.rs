//! The adapters of a process.

use std::{
    any::Any,
    collections::{BTreeMap, HashMap},
    fmt,
    marker::PhantomData,
    sync::Arc,
};

use foldhash::fast::RandomState;
use prometheus_client::metrics::counter::Counter;
use prost_reflect::MessageDescriptor;
use tokio::runtime::Handle as Runtime;

use super::{
    adapter_info::{AdapterInfo, TemplateInfo, quoted_list},
    blocking::{BlockingThreads, OpeningThreads},
    call::{Method, TemplateMethod},
    erased::{AnyAdapter, Typed},
    panics::contain,
};
use mixer_adapter_core::{
    adapter::{Access, Adapter, Config, Declared, Faults, Handle, InferredTypes, Settings, Templates},
    framework::{
        MetricStore, Shared, TemplateVisitor, Warnings, dynamic::DescriptorError, log_limit::LogLimit,
        name::is_valid_name, optional_fields::pool_with_optional_fields,
    },
    metrics::Metrics,
    template::Template,
};
use mixer_adapter_net::tls::SystemClient;

/// A set of adapters that cannot be served together: a defect of the program, found when it starts.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Two adapters have the same name.
    #[error("two adapters have the name `{name}`")]
    DuplicateAdapter {
        /// The name.
        name: &'static str,
    },
    /// Two adapters have the same configuration message, which must identify the adapter of a call.
    #[error(
        "adapters `{first}` and `{second}` have the same configuration message `{message}`: give each its own package"
    )]
    DuplicateConfig {
        /// The message.
        message: &'static str,
        /// One adapter.
        first: &'static str,
        /// The other.
        second: &'static str,
    },
    /// The configuration's descriptor cannot be read or lacks its message.
    #[error("the configuration of adapter `{adapter}` has no usable descriptor: {source}")]
    Descriptor {
        /// The adapter.
        adapter: &'static str,
        /// The fault.
        source: DescriptorError,
    },
    /// Two different templates have the same name or method.
    #[error("two different templates have the name `{name}`")]
    DuplicateTemplate {
        /// The name.
        name: &'static str,
    },
}

/// The adapters of a process and the gRPC methods that reach them.
#[derive(Default)]
pub struct Adapters {
    entries: Vec<Arc<dyn AnyAdapter>>,
    by_name: BTreeMap<&'static str, usize>,
    by_config: HashMap<&'static str, usize, RandomState>,
    methods: HashMap<&'static str, Arc<dyn Method>, RandomState>,
    templates: BTreeMap<&'static str, TemplateInfo>,
    metrics: Arc<MetricStore>,
    warnings: Arc<Warnings>,
}

impl fmt::Debug for Adapters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.by_name.keys()).finish()
    }
}

impl Adapters {
    /// Starts an empty set. Blocking adapters use threads of `runtime`.
    pub fn builder(runtime: Runtime) -> AdaptersBuilder {
        AdaptersBuilder {
            adapters: Self::default(),
            tls: Arc::default(),
            template_methods: HashMap::new(),
            runtime,
            error: None,
        }
    }

    /// Returns all adapters, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<AdapterInfo>> {
        self.by_name.values().map(|index| self.entries[*index].info())
    }

    /// Returns the adapter with a name.
    pub fn find(&self, name: &str) -> Option<&Arc<AdapterInfo>> {
        self.by_name.get(name).map(|index| self.entries[*index].info())
    }

    /// Returns the adapter with a configuration message.
    pub fn configured_by(&self, message: &str) -> Option<&Arc<AdapterInfo>> {
        self.by_config.get(message).map(|index| self.entries[*index].info())
    }

    /// Returns the names of all configuration messages, for errors.
    pub(crate) fn config_names(&self) -> String {
        quoted_list(self.iter().map(|adapter| adapter.config.full_name()))
    }

    /// Returns all templates served, by name.
    pub fn templates(&self) -> impl Iterator<Item = &TemplateInfo> {
        self.templates.values()
    }

    /// Returns the template with a `Type` message, `metric.Type`.
    pub(crate) fn template_of_type(&self, message: &str) -> Option<&TemplateInfo> {
        let package = message.strip_suffix(".Type")?;
        self.templates.values().find(|template| template.package == package)
    }

    /// Returns the method at a path, `/listentry.HandleListEntryService/HandleListEntry`.
    pub fn method(&self, path: &str) -> Option<&Arc<dyn Method>> {
        self.methods.get(path)
    }

    /// Returns the method of a template with its path.
    pub fn method_at(&self, path: &str) -> Option<(&'static str, &Arc<dyn Method>)> {
        self.methods.get_key_value(path).map(|(path, method)| (*path, method))
    }

    /// Returns the counters of events: adapter, event, count.
    pub fn event_counts(&self) -> Vec<(&'static str, &'static str, u64)> {
        self.metrics.event_counts()
    }

    /// Returns the metrics of all open handlers in the format of OpenMetrics, without its end.
    ///
    /// # Errors
    /// A metric that cannot be encoded.
    pub fn handler_metrics(&self) -> Result<String, fmt::Error> {
        self.metrics.encode()
    }

    /// Returns the current warnings of handlers.
    pub fn warnings(&self) -> Vec<String> {
        self.warnings.all()
    }

    /// Returns all methods, in no particular order.
    pub fn methods(&self) -> impl Iterator<Item = &Arc<dyn Method>> {
        self.methods.values()
    }

    pub(crate) fn entry(&self, adapter: &AdapterInfo) -> &Arc<dyn AnyAdapter> {
        &self.entries[adapter.index]
    }
}

/// Builds a set of adapters.
pub struct AdaptersBuilder {
    adapters: Adapters,
    tls: Arc<SystemClient>,
    /// [`TemplateMethod`]s by path.
    template_methods: HashMap<&'static str, Box<dyn Any + Send>>,
    runtime: Runtime,
    error: Option<StartError>,
}

mixer_adapter_core::framework::debug_fields!(AdaptersBuilder { adapters });

impl AdaptersBuilder {
    /// Adds an adapter without state.
    #[must_use]
    pub fn add<A: Adapter>(self) -> Self {
        self.add_with::<A, ()>(Arc::new(()))
    }

    /// Adds an adapter with the state of the program.
    #[must_use]
    pub fn add_with<A: Adapter<S>, S: Send + Sync + 'static>(mut self, state: Arc<S>) -> Self {
        const { assert!(is_valid_name(A::NAME), "Adapter::NAME must match ^[a-z]([-a-z0-9]*[a-z0-9])?$") };
        if let Err(error) = self.try_add::<A, S>(state) {
            self.error.get_or_insert(error);
        }
        self
    }

    /// Returns the set.
    ///
    /// # Errors
    /// The first conflict among the adapters that were added.
    pub fn build(self) -> Result<Adapters, StartError> {
        match self.error {
            Some(error) => Err(error),
            None => Ok(self.adapters),
        }
    }

    fn try_add<A: Adapter<S>, S: Send + Sync + 'static>(&mut self, state: Arc<S>) -> Result<(), StartError> {
        let index = self.adapters.entries.len();
        if self.adapters.by_name.insert(A::NAME, index).is_some() {
            return Err(StartError::DuplicateAdapter { name: A::NAME });
        }
        if let Some(first) = self.adapters.by_config.insert(Params::<A, S>::NAME, index) {
            return Err(StartError::DuplicateConfig {
                message: Params::<A, S>::NAME,
                first: self.adapters.entries[first].info().name,
                second: A::NAME,
            });
        }
        let mut served =
            Served { builder: self, index, adapter: A::NAME, templates: Vec::new(), conflict: None };
        A::Templates::visit(&mut served);
        let Served { templates, conflict, .. } = served;
        if let Some(name) = conflict {
            return Err(StartError::DuplicateTemplate { name });
        }
        let info = Arc::new(AdapterInfo {
            index,
            name: A::NAME,
            description: A::DESCRIPTION,
            version: A::VERSION.parse().ok(),
            config: config_message::<A, S>()?,
            config_descriptor: Params::<A, S>::DESCRIPTOR,
            config_comments: Params::<A, S>::COMMENTS,
            example: A::EXAMPLE,
            answers_from_memory: A::ANSWERS_FROM_MEMORY,
            templates,
            settings: declared::<A::Config>(),
            metrics: Metrics::of(A::NAME, self.adapters.metrics.clone()),
            panics: Counter::default(),
            panic_log: LogLimit::new(),
        });
        self.adapters.entries.push(Arc::new(Typed::<A, S> {
            info,
            threads: A::BLOCKING.then(|| BlockingThreads::new(self.runtime.clone())),
            opening: OpeningThreads::new(self.runtime.clone()),
            state,
            shared: Arc::new(Shared::default()),
            warnings: self.adapters.warnings.clone(),
            tls: self.tls.clone(),
            adapter: PhantomData,
        }));
        Ok(())
    }
}

/// The configuration message of an adapter.
type Params<A, S> = <<A as Adapter<S>>::Config as Settings>::Params;

/// Returns the limits and defaults of fields, from reading a configuration that is empty.
fn declared<C: Settings>() -> Vec<Declared> {
    let (types, access) = (InferredTypes::default(), Access::unrestricted());
    let mut faults = Faults::new(&types, &access);
    // A panic is reported when a configuration is validated.
    let _ = contain(|| drop(C::parse(C::Params::default(), &mut faults)));
    faults.into_declared()
}

fn config_message<A: Adapter<S>, S>() -> Result<MessageDescriptor, StartError> {
    let error = |source| StartError::Descriptor { adapter: A::NAME, source };
    let pool = pool_with_optional_fields(Params::<A, S>::DESCRIPTOR).map_err(error)?;
    pool.get_message_by_name(Params::<A, S>::NAME)
        .ok_or_else(|| error(DescriptorError::NoMessage(Params::<A, S>::NAME.to_owned())))
}

/// Adds an adapter to the method of each of its templates.
struct Served<'a> {
    builder: &'a mut AdaptersBuilder,
    index: usize,
    adapter: &'static str,
    templates: Vec<TemplateInfo>,
    conflict: Option<&'static str>,
}

impl<A> TemplateVisitor<A> for Served<'_> {
    fn template<T: Template>(&mut self)
    where
        A: Handle<T>,
    {
        let info = TemplateInfo::of::<T>();
        self.templates.push(info);
        let adapters = &mut self.builder.adapters;
        if adapters.templates.insert(T::NAME, info).is_some_and(|known| known != info) {
            self.conflict = Some(T::NAME);
            return;
        }
        let method = self
            .builder
            .template_methods
            .entry(T::METHOD)
            .or_insert_with(|| Box::new(TemplateMethod::<T>::default()));
        let Some(method) = method.downcast_mut::<TemplateMethod<T>>() else {
            self.conflict = Some(T::NAME);
            return;
        };
        method.add::<A>(self.index, self.adapter);
        adapters.methods.insert(T::METHOD, Arc::new(method.clone()));
    }
}
