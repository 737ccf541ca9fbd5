use std::{
    any::Any,
    collections::{BTreeMap, HashMap},
    marker::PhantomData,
    sync::Arc,
};

use prometheus_client::metrics::counter::Counter;
use prost_reflect::MessageDescriptor;
use tokio::runtime::Handle as Runtime;

use super::{
    blocking::BlockingThreads,
    entry::{AnyAdapter, Typed},
    servers::{Method, Servers, TypedServer},
};
use mixer_adapter_core::{
    adapter::{Adapter, Config, Handle, Templates},
    framework::{
        TemplateVisitor, dynamic::DescriptorError, name::is_valid_name,
        optional_fields::pool_with_optional_fields,
    },
    template::{Template, Variety},
};

/// What there is to know about an adapter without its type.
#[derive(Debug)]
pub struct AdapterInfo {
    /// Its place among the adapters of this process.
    pub(crate) index: usize,
    /// [`Adapter::NAME`].
    pub name: &'static str,
    /// [`Adapter::DESCRIPTION`].
    pub description: &'static str,
    /// The configuration message, with presence for every field.
    pub config: MessageDescriptor,
    /// [`Config::DESCRIPTOR`].
    pub config_descriptor: &'static [u8],
    /// The templates it serves.
    pub templates: Vec<TemplateInfo>,
    pub(crate) panics: Counter,
}

impl AdapterInfo {
    /// Whether it serves a template of that name.
    pub fn serves(&self, template: &str) -> bool {
        self.templates.iter().any(|served| served.name == template)
    }

    /// How often its handlers panicked.
    pub fn panics(&self) -> u64 {
        self.panics.get()
    }

    /// The names of its templates, for messages.
    pub(crate) fn template_names(&self) -> String {
        list(self.templates.iter().map(|template| template.name))
    }
}

/// What there is to know about a template without its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TemplateInfo {
    /// [`Template::NAME`].
    pub name: &'static str,
    /// [`Template::VARIETY`].
    pub variety: Variety,
    /// [`Template::PACKAGE`].
    pub package: &'static str,
    /// [`Template::METHOD`].
    pub method: &'static str,
    /// [`Template::DESCRIPTOR`].
    pub descriptor: &'static [u8],
}

impl TemplateInfo {
    fn of<T: Template>() -> Self {
        Self {
            name: T::NAME,
            variety: T::VARIETY,
            package: T::PACKAGE,
            method: T::METHOD,
            descriptor: T::DESCRIPTOR,
        }
    }
}

/// Why a set of adapters cannot be served together: a defect of the program, found at its start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Two adapters have one name.
    #[error("two adapters are called `{name}`")]
    DuplicateAdapter {
        /// The name.
        name: &'static str,
    },
    /// Two adapters have one configuration message, by which calls find theirs.
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
    /// Two templates have one name or method but are not the same.
    #[error("two different templates are called `{name}`")]
    DuplicateTemplate {
        /// The name.
        name: &'static str,
    },
}

/// The adapters of a process and the gRPC methods that reach them.
pub struct Adapters {
    entries: Vec<Arc<dyn AnyAdapter>>,
    by_name: BTreeMap<&'static str, usize>,
    by_config: HashMap<&'static str, usize>,
    methods: HashMap<&'static str, Arc<dyn Method>>,
    templates: BTreeMap<&'static str, TemplateInfo>,
}

impl Adapters {
    /// No adapters yet. Those that block get their threads from that runtime.
    pub fn builder(runtime: Runtime) -> AdaptersBuilder {
        AdaptersBuilder {
            adapters: Self {
                entries: Vec::new(),
                by_name: BTreeMap::new(),
                by_config: HashMap::new(),
                methods: HashMap::new(),
                templates: BTreeMap::new(),
            },
            servers: HashMap::new(),
            runtime,
            error: None,
        }
    }

    /// All adapters, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<AdapterInfo>> {
        self.by_name.values().map(|index| self.entries[*index].info())
    }

    /// The adapter of that name.
    pub fn find(&self, name: &str) -> Option<&Arc<AdapterInfo>> {
        self.by_name.get(name).map(|index| self.entries[*index].info())
    }

    /// The adapter whose configuration is that message.
    pub fn configured_by(&self, message: &str) -> Option<&Arc<AdapterInfo>> {
        self.by_config.get(message).map(|index| self.entries[*index].info())
    }

    /// The names of all configuration messages, for messages.
    pub(crate) fn config_names(&self) -> String {
        list(self.iter().map(|adapter| adapter.config.full_name()))
    }

    /// All templates that some adapter serves, by name.
    pub fn templates(&self) -> impl Iterator<Item = &TemplateInfo> {
        self.templates.values()
    }

    /// The template that has `message` as its `Type`, `metric.Type`.
    pub(crate) fn template_of_type(&self, message: &str) -> Option<&TemplateInfo> {
        let package = message.strip_suffix(".Type")?;
        self.templates.values().find(|template| template.package == package)
    }

    /// The method at that path, `/listentry.HandleListEntryService/HandleListEntry`.
    pub fn method(&self, path: &str) -> Option<&Arc<dyn Method>> {
        self.methods.get(path)
    }

    /// All methods, in no order.
    pub fn methods(&self) -> impl Iterator<Item = &Arc<dyn Method>> {
        self.methods.values()
    }

    pub(crate) fn entry(&self, adapter: &AdapterInfo) -> &Arc<dyn AnyAdapter> {
        &self.entries[adapter.index]
    }
}

/// Names for a message: `a`, `b` and `c`.
pub fn list(names: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let names: Vec<String> = names.into_iter().map(|name| format!("`{}`", name.as_ref())).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// Adapters being put together.
pub struct AdaptersBuilder {
    adapters: Adapters,
    servers: HashMap<&'static str, Box<dyn Any + Send>>,
    runtime: Runtime,
    error: Option<StartError>,
}

impl AdaptersBuilder {
    /// Adds an adapter.
    #[must_use]
    pub fn add<A: Adapter>(mut self) -> Self {
        const { assert!(is_valid_name(A::NAME), "Adapter::NAME must match ^[a-z]([-a-z0-9]*[a-z0-9])?$") };
        if let Err(error) = self.try_add::<A>() {
            self.error.get_or_insert(error);
        }
        self
    }

    /// The adapters, if they can be served together.
    pub fn build(self) -> Result<Adapters, StartError> {
        match self.error {
            Some(error) => Err(error),
            None => Ok(self.adapters),
        }
    }

    fn try_add<A: Adapter>(&mut self) -> Result<(), StartError> {
        let index = self.adapters.entries.len();
        if self.adapters.by_name.insert(A::NAME, index).is_some() {
            return Err(StartError::DuplicateAdapter { name: A::NAME });
        }
        if let Some(first) = self.adapters.by_config.insert(A::Config::NAME, index) {
            return Err(StartError::DuplicateConfig {
                message: A::Config::NAME,
                first: self.adapters.entries[first].info().name,
                second: A::NAME,
            });
        }
        let threads = A::BLOCKING.then(|| BlockingThreads::new(self.runtime.clone()));
        let mut served =
            Served { builder: self, index, threads: threads.clone(), templates: Vec::new(), clash: None };
        A::Templates::visit(&mut served);
        let Served { templates, clash, .. } = served;
        if let Some(name) = clash {
            return Err(StartError::DuplicateTemplate { name });
        }
        let info = Arc::new(AdapterInfo {
            index,
            name: A::NAME,
            description: A::DESCRIPTION,
            config: config_message::<A>()?,
            config_descriptor: A::Config::DESCRIPTOR,
            templates,
            panics: Counter::default(),
        });
        self.adapters.entries.push(Arc::new(Typed::<A> { info, threads, adapter: PhantomData }));
        Ok(())
    }
}

fn config_message<A: Adapter>() -> Result<MessageDescriptor, StartError> {
    let error = |source| StartError::Descriptor { adapter: A::NAME, source };
    let pool = pool_with_optional_fields(A::Config::DESCRIPTOR).map_err(error)?;
    pool.get_message_by_name(A::Config::NAME)
        .ok_or_else(|| error(DescriptorError::NoMessage(A::Config::NAME.to_owned())))
}

/// Adds an adapter to the server of each of its templates.
struct Served<'a> {
    builder: &'a mut AdaptersBuilder,
    index: usize,
    threads: Option<BlockingThreads>,
    templates: Vec<TemplateInfo>,
    clash: Option<&'static str>,
}

impl<A: Adapter> TemplateVisitor<A> for Served<'_> {
    fn template<T: Template>(&mut self)
    where
        A: Handle<T>,
    {
        let info = TemplateInfo::of::<T>();
        self.templates.push(info);
        let adapters = &mut self.builder.adapters;
        if adapters.templates.insert(T::NAME, info).is_some_and(|known| known != info) {
            self.clash = Some(T::NAME);
            return;
        }
        let servers =
            self.builder.servers.entry(T::METHOD).or_insert_with(|| Box::new(Servers::<T>::default()));
        let Some(servers) = servers.downcast_mut::<Servers<T>>() else {
            self.clash = Some(T::NAME);
            return;
        };
        servers.add(self.index, Arc::new(TypedServer::<A>::new(self.threads.clone())));
        adapters.methods.insert(T::METHOD, Arc::new(servers.clone()));
    }
}
