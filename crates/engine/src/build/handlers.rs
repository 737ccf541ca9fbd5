//! Handlers of a configuration, before they are opened.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use bytes::Bytes;
use prost::Message as _;
use prost_reflect::MessageDescriptor;
use serde_json::{Map, Value as Json};

use super::{Former, index::Index, rule_spec::RuleSpec, schemas::Adapters};
use crate::instance::Instance;
use mixer_adapter_config::{
    self as config, ConfigSet, Kind, Resource, ResourceName, Spec, Target, ValidationError, findings,
    proto::istio::policy::v1beta1::Connection,
};
use mixer_adapter_core::{
    adapter::{InferredType, InferredTypes},
    framework::{
        digest::Digest,
        dynamic::DynamicTemplate,
        json::{read_json_all, read_json_leniently},
        suggest::suggestion,
        version::SemanticVersion,
    },
    proto::Any,
    template::Variety,
};
use mixer_adapter_host::{Host, Origin, handler::AdapterInfo};

/// A parsed and resolved handler resource.
#[derive(Clone, Debug)]
pub struct HandlerSpec {
    /// The full name.
    pub name: ResourceName,
    /// The adapter and its configuration.
    pub backend: BackendSpec,
    /// The instances of its calls by full name.
    instances: BTreeMap<Arc<str>, Arc<Instance>>,
    /// Whether its answers do not count.
    is_shadow: bool,
    resource: Resource,
}

/// The backend of a handler.
#[derive(Clone, Debug)]
pub enum BackendSpec {
    /// An adapter in this process with its canonical configuration.
    InProcess {
        /// The adapter.
        adapter: Arc<AdapterInfo>,
        /// The configuration.
        config: Bytes,
    },
    /// An out-of-process adapter.
    Remote {
        /// The connection to it.
        connection: Box<Connection>,
        /// The configuration to send, if there is any.
        adapter_config: Option<Any>,
        /// Whether the configuration is sent by opening a session.
        session_based: bool,
    },
}

/// A handler as rules refer to it.
#[derive(Debug)]
pub(super) struct ResolvedHandler {
    resource: Resource,
    backend: BackendSpec,
    /// The templates of a remote adapter.
    templates: Vec<Arc<DynamicTemplate>>,
}

pub(super) type Handlers = Index<ResolvedHandler>;

/// Handlers, and the full names of instances of reports that they refuse.
pub(super) type Refused = BTreeSet<(ResourceName, String)>;

impl ResolvedHandler {
    /// Returns whether the adapter supports the template.
    pub(super) fn serves(&self, template: &DynamicTemplate) -> bool {
        match &self.backend {
            BackendSpec::InProcess { adapter, .. } => {
                adapter.templates.iter().any(|served| served.method == template.method())
            }
            BackendSpec::Remote { .. } => {
                self.templates.iter().any(|served| served.method() == template.method())
            }
        }
    }
}

pub(super) fn read(
    set: &ConfigSet,
    adapters: &Adapters,
    host: &Host,
    former: Option<&Former<'_>>,
    faults: &mut Vec<ValidationError>,
) -> Handlers {
    let former = former.filter(|former| adapters.is_same(&former.compiled.adapters));
    Index::read(
        set,
        Kind::Handler,
        faults,
        former.map(|former| (&former.compiled.handlers, &former.changed[..])),
        |resource, spec, faults| match spec {
            Spec::Handler(spec) => handler(set, resource, spec, adapters, host, faults),
            _ => Err(Vec::new()),
        },
    )
}

fn handler(
    set: &ConfigSet,
    resource: &Resource,
    spec: &config::Handler,
    adapters: &Adapters,
    host: &Host,
    faults: &mut Vec<ValidationError>,
) -> Result<ResolvedHandler, Vec<ValidationError>> {
    let params = spec.params.clone().unwrap_or_default();
    let reference = match &spec.adapter {
        Target::Compiled(adapter) => return in_process(resource, adapter, params, host, faults),
        Target::Resource(reference) => reference,
    };
    let (_, adapter) =
        adapters.resolve(set, &Kind::Adapter, reference, resource.name.namespace()).map_err(|why| {
            let mut why = why.to_string();
            if host.adapters().find(reference).is_some() {
                why.push_str(&format!(
                    "; write compiledAdapter: {reference} for the adapter of this program"
                ));
            }
            vec![resource.error("adapter", why)]
        })?;
    let connection = spec.connection.clone().unwrap_or_default();
    let mut wrong = Vec::new();
    if connection.address.is_empty() {
        wrong.push(resource.error("connection.address", "a handler elsewhere needs an address, host:port"));
    }
    // As in Mixer, params for an adapter without a configuration message are ignored.
    let adapter_config = match &adapter.params {
        None => None,
        Some(message) => {
            let value =
                self::params(resource, message, params, None, faults).map_err(|found| wrong.extend(found));
            let type_url = format!("type.googleapis.com/{}", message.full_name());
            value.ok().map(|value| Any { type_url, value })
        }
    };
    if !wrong.is_empty() {
        return Err(wrong);
    }
    let backend = BackendSpec::Remote {
        connection: Box::new(connection),
        adapter_config,
        session_based: adapter.session_based,
    };
    Ok(ResolvedHandler { resource: resource.clone(), backend, templates: adapter.templates.clone() })
}

/// Returns the adapter's configuration. Warns of deprecated fields; `release`, the adapter's version, decides on the stage of their
/// deprecation.
fn params(
    resource: &Resource,
    message: &MessageDescriptor,
    params: Map<String, Json>,
    release: Option<SemanticVersion>,
    faults: &mut Vec<ValidationError>,
) -> Result<Bytes, Vec<ValidationError>> {
    let read = read_json_all(message, Json::Object(params)).map_err(|errors| -> Vec<ValidationError> {
        let faults = errors.into_iter();
        faults.map(|error| resource.error(&join("params", &error.field), error.reason)).collect()
    })?;
    faults.extend(findings(&read, release).iter().map(|finding| resource.finding(finding, "params")));
    Ok(read.encode_to_vec().into())
}

fn in_process(
    resource: &Resource,
    adapter: &str,
    params: Map<String, Json>,
    host: &Host,
    faults: &mut Vec<ValidationError>,
) -> Result<ResolvedHandler, Vec<ValidationError>> {
    let Some(adapter) = host.adapters().find(adapter) else {
        let known: Vec<&str> = host.adapters().iter().map(|adapter| adapter.name).collect();
        let reason =
            format!("there is no adapter {adapter:?} in this process; {}", suggestion(adapter, &known));
        return Err(vec![resource.error("compiled_adapter", reason)]);
    };
    let config = self::params(resource, &adapter.config, params.clone(), adapter.version, faults);
    // As in Mixer, in lenient mode the handler keeps its valid params, so that its checks remain in effect.
    let config = config.unwrap_or_else(|mut found| {
        let kept = read_json_leniently(&adapter.config, Json::Object(params));
        let names: Vec<String> = kept.fields().map(|(field, _)| field.name().to_owned()).collect();
        let of_them = if names.is_empty() {
            "the defaults of all its fields".to_owned()
        } else {
            format!("what could be read of {}, and the defaults of all other fields", names.join(", "))
        };
        if let Some(last) = found.last_mut() {
            last.reason = format!("{}; with --lenient the handler has {of_them}", last.reason).into();
        }
        faults.extend(found);
        kept.encode_to_vec().into()
    });
    let config = host
        .handlers()
        .canonical(adapter, config)
        .map_err(|error| vec![resource.error("params", error.to_string())])?;
    let backend = BackendSpec::InProcess { adapter: adapter.clone(), config };
    Ok(ResolvedHandler { resource: resource.clone(), backend, templates: Vec::new() })
}

/// Returns the used handlers, each with the instances of its calls, and the unused ones.
pub(super) fn by_use<'r>(
    handlers: &Handlers,
    rules: impl Iterator<Item = &'r RuleSpec>,
) -> (Vec<Arc<HandlerSpec>>, Vec<Arc<HandlerSpec>>) {
    let mut instances: BTreeMap<&ResourceName, BTreeMap<_, _>> = BTreeMap::new();
    for action in rules.flat_map(|rule| &rule.actions) {
        let of_handler = instances.entry(&action.handler).or_default();
        of_handler
            .extend(action.instances.iter().map(|spec| (spec.instance.name.clone(), spec.instance.clone())));
    }
    let specs = handlers.iter().map(|(name, configured)| {
        let ResolvedHandler { resource, backend, .. } = configured;
        let instances = instances.remove(name).unwrap_or_default();
        let (name, backend, resource) = (name.clone(), backend.clone(), resource.clone());
        Arc::new(HandlerSpec { name, backend, instances, is_shadow: false, resource })
    });
    specs.partition(|spec| !spec.instances.is_empty())
}

/// Has adapters of this process validate configuration and instances. Returns the handlers that pass, and the refused report
/// instances by handler. A handler passes if only report instances are refused: in lenient mode the others are reported.
pub(super) fn validate(
    mut handlers: Vec<Arc<HandlerSpec>>,
    host: &Host,
    faults: &mut Vec<ValidationError>,
) -> (Vec<Arc<HandlerSpec>>, Refused) {
    let mut refused = Refused::new();
    handlers.retain(|spec| {
        let BackendSpec::InProcess { adapter, config } = &spec.backend else {
            faults.extend(spec.remote_warnings(host));
            return true;
        };
        let validate =
            |types: &InferredTypes| host.handlers().validate_blocking(adapter, config, types, spec.origin());
        let types = spec.inferred_types(adapter);
        let Err(error) = validate(&types) else {
            faults.extend(spec.warnings(host, adapter, config, &types));
            return true;
        };
        faults.extend(spec.refusal(&error));
        if validate(&InferredTypes::default()).is_err() {
            return false;
        }
        let each = spec.inferred_type_of_each(adapter);
        let invalid: Vec<_> = each
            .filter(|(_, inferred)| validate(&InferredTypes::new(vec![inferred.clone()])).is_err())
            .collect();
        let only_reports = !invalid.is_empty()
            && invalid.iter().all(|(_, inferred)| {
                let template = adapter.templates.iter().find(|served| served.name == inferred.template);
                template.is_some_and(|served| served.variety == Variety::Report)
            });
        if only_reports {
            refused
                .extend(invalid.into_iter().map(|(instance, _)| (spec.name.clone(), instance.to_string())));
        }
        only_reports
    });
    (handlers, refused)
}

impl HandlerSpec {
    /// Identifies the behaviour of a handler: handlers with equal signatures are interchangeable.
    pub(crate) fn signature(&self) -> Digest {
        // A handler of another origin may reach other files and hosts.
        let origin = format!("{:?}", self.origin());
        let mut parts: Vec<Vec<u8>> = vec![self.name.to_string().into_bytes(), origin.into_bytes()];
        match &self.backend {
            BackendSpec::InProcess { adapter, config } => {
                parts.push(adapter.name.as_bytes().to_vec());
                parts.push(config.to_vec());
            }
            BackendSpec::Remote { connection, adapter_config, session_based } => {
                parts.push(connection.encode_to_vec());
                parts.push(adapter_config.as_ref().map(Any::encode_to_vec).unwrap_or_default());
                if *session_based {
                    for (instance, inferred) in self.types() {
                        parts.push(instance.as_bytes().to_vec());
                        parts.push(inferred.encode_to_vec());
                    }
                }
            }
        }
        if self.is_shadow {
            // Its instances decide whether and how a backend in the shadow is opened.
            parts.push(vec![u8::from(self.is_local_with_answers()), u8::from(self.counts_apart())]);
        }
        Digest::of(parts.iter().map(Vec::as_slice))
    }

    /// Where its configuration comes from.
    pub(crate) fn origin(&self) -> Origin {
        if self.resource.is_received() { Origin::Server } else { Origin::Operator }
    }

    /// The name in messages of denials: as in Mixer, `name.namespace` for a handler of a compiled adapter, and the
    /// full name for all others, including kinds that are named after the adapter.
    pub(crate) fn denial_name(&self) -> Arc<str> {
        match (&self.backend, self.name.kind()) {
            (BackendSpec::InProcess { .. }, Kind::Handler) => {
                format!("{}.{}", self.name.name(), self.name.namespace()).into()
            }
            _ => self.name.to_string().into(),
        }
    }

    /// The types of the instances, for validation by an adapter of this process.
    pub(super) fn inferred_types(&self, adapter: &AdapterInfo) -> InferredTypes {
        InferredTypes::new(self.inferred_type_of_each(adapter).map(|(_, inferred)| inferred).collect())
    }

    fn inferred_type_of_each(
        &self,
        adapter: &AdapterInfo,
    ) -> impl Iterator<Item = (&Arc<str>, InferredType)> {
        self.instances.iter().filter_map(|(name, instance)| {
            let served = adapter.templates.iter().find(|served| served.name == instance.template.name())?;
            Some((name, InferredType::new(&**name, served.name, instance.inferred_type())))
        })
    }

    /// The `Type` messages of the instances of its calls by full name.
    pub(super) fn types(&self) -> impl Iterator<Item = (&Arc<str>, Any)> {
        self.instances.iter().map(|(name, instance)| {
            // Without a slash, as Mixer's session client sends it (docs/behaviour/sessions.md#the-bypass-adapter).
            let type_url = instance.template.type_name().to_owned();
            (name, Any { type_url, value: instance.inferred_type().into() })
        })
    }

    /// Returns the probable mistakes that an adapter of this process finds.
    fn warnings(
        &self,
        host: &Host,
        adapter: &AdapterInfo,
        config: &Bytes,
        types: &InferredTypes,
    ) -> Vec<ValidationError> {
        let found = host.handlers().warnings(adapter, config, types).into_iter();
        found.map(|found| self.resource.warning(&join("params", &found.field), found.reason)).collect()
    }

    /// Returns the warnings for an out-of-process adapter whose configuration message is known in this process.
    fn remote_warnings(&self, host: &Host) -> Vec<ValidationError> {
        let BackendSpec::Remote { adapter_config: Some(config), .. } = &self.backend else {
            return Vec::new();
        };
        let adapter = host.adapters().iter().find(|known| known.config.full_name() == config.message_name());
        let Some(adapter) = adapter else { return Vec::new() };
        let canonical = host.handlers().canonical(adapter, config.value.clone());
        let types = self.inferred_types(adapter);
        canonical.map(|config| self.warnings(host, adapter, &config, &types)).unwrap_or_default()
    }

    /// Creates a fault of this handler's resource.
    pub fn fault(&self, field: &str, reason: impl Into<Box<str>>) -> ValidationError {
        self.resource.error(field, reason)
    }

    /// Converts a rejection by the adapter to faults, one for each field that it names.
    pub(crate) fn refusal(&self, error: &mixer_adapter_host::handler::CallError) -> Vec<ValidationError> {
        use mixer_adapter_host::handler::CallError;
        match error {
            CallError::Refused { source, .. } if !source.violations().is_empty() => source
                .violations()
                .iter()
                .map(|violation| self.fault(&join("params", &violation.field), violation.reason.clone()))
                .collect(),
            error => vec![self.fault("params", error.to_string())],
        }
    }

    /// Returns whether it is a handler of this process that has calls with answers. An adapter that only reports may listen on a port or write
    /// files as soon as it is opened.
    pub fn is_local_with_answers(&self) -> bool {
        self.calls_here(|variety| variety != Variety::Report)
    }

    /// Returns a handler whose answers do not count.
    pub(super) fn in_shadow(&self) -> Self {
        Self { is_shadow: true, ..self.clone() }
    }

    /// Returns whether it is a handler of this process whose quotas do not count. Its counters must not take the room of others.
    pub(super) fn counts_apart(&self) -> bool {
        self.is_shadow && self.calls_here(|variety| variety == Variety::Quota)
    }

    /// Returns whether it is a handler of this process with calls of such a variety.
    fn calls_here(&self, is_meant: impl Fn(Variety) -> bool) -> bool {
        let BackendSpec::InProcess { adapter, .. } = &self.backend else { return false };
        let mut meant = adapter.templates.iter().filter(|template| is_meant(template.variety));
        meant.any(|template| self.instances.values().any(|used| used.template.name() == template.name))
    }
}

fn join(path: &str, field: &str) -> String {
    if field.is_empty() { path.to_owned() } else { format!("{path}.{field}") }
}
