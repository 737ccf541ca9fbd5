//! Opens handlers: new ones before old ones are closed.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use futures_util::future::join_all;
use prost::Message as _;

use super::handlers::{BackendSpec, HandlerSpec};
use crate::{
    handler::{HandlerBackend, LocalBackend, RemoteBackend, RuntimeHandler},
    remote::{self, OpenError, RemoteAdapter, Session},
    resource_counts::ResourceCounts,
    snapshot::Snapshot,
};
use mixer_adapter_config::{ResourceName, ValidationError};
use mixer_adapter_core::{adapter::ConfigErrors, framework::digest::Digest};
use mixer_adapter_host::{
    Host, NewSession,
    handler::{BoxFuture, Closing, Purpose},
};

/// The backend of an open handler.
pub type BoxBackend = Box<dyn HandlerBackend>;

/// A backend while it is opened; fails with the faults of its resource.
pub type Connecting<'a> = BoxFuture<'a, Result<BoxBackend, Vec<ValidationError>>>;

/// Opens the backends of handlers.
pub trait Connect: Send + Sync {
    /// Opens a backend. An out-of-process adapter that cannot be reached is not a fault; the handler retries.
    fn connect<'a>(&'a self, spec: &'a HandlerSpec) -> Connecting<'a>;
}

/// Opens backends in this process and out of process.
#[derive(Debug)]
pub struct Connector {
    /// The adapters of this process.
    pub host: Arc<Host>,
    /// Options of connections to out-of-process adapters.
    pub remote: remote::Options,
    /// Runs connections, and closes sessions.
    pub closing: Closing,
}

impl Connect for Connector {
    fn connect<'a>(&'a self, spec: &'a HandlerSpec) -> Connecting<'a> {
        let access = self.host.handlers().access(spec.origin());
        let remote = remote::Options { access, ..self.remote.clone() };
        Box::pin(async move {
            match &spec.backend {
                BackendSpec::InProcess { adapter, config } => {
                    let name: Arc<str> = spec.name.to_string().into();
                    let purpose = Purpose::configured(name.clone(), spec.inferred_types(adapter))
                        .apart(spec.counts_apart());
                    let opened = self.host.handlers().open(adapter, config.clone(), spec.origin(), purpose);
                    let handler = opened.await.map_err(|error| spec.refusal(&error))?;
                    Ok(Box::new(LocalBackend::new(name, &self.host, handler)) as BoxBackend)
                }
                BackendSpec::Remote { connection, adapter_config, session_based: false } => {
                    let adapter = RemoteAdapter::new(connection, &remote, self.closing.runtime())
                        .map_err(|errors| faults(spec, errors))?;
                    let adapter_config = adapter_config.as_ref().map(|any| any.encode_to_vec().into());
                    Ok(Box::new(RemoteBackend { adapter, adapter_config }) as BoxBackend)
                }
                BackendSpec::Remote { connection, adapter_config, session_based: true } => {
                    let types = spec.types().map(|(name, inferred)| (name.to_string(), inferred));
                    let new = NewSession {
                        adapter_config: adapter_config.clone(),
                        inferred_types: types.collect(),
                    };
                    match Session::open(connection, new, &remote, &self.closing).await {
                        Ok(session) => Ok(Box::new(session) as BoxBackend),
                        Err(OpenError::Connection(errors)) => Err(faults(spec, errors)),
                        Err(OpenError::Refused(refused)) => {
                            Err(vec![spec.fault("params", refused.to_string())])
                        }
                    }
                }
            }
        })
    }
}

/// Converts the faults of a connection, whose fields are relative to the spec.
fn faults(spec: &HandlerSpec, errors: ConfigErrors) -> Vec<ValidationError> {
    let violations = errors.into_violations().into_iter();
    violations.map(|violation| spec.fault(&violation.field, violation.reason)).collect()
}

/// Opens all handlers concurrently, except handlers of the previous snapshot, which are carried over.
pub(super) async fn open_all(
    specs: &[Arc<HandlerSpec>],
    former: Option<&Snapshot>,
    connect: &dyn Connect,
    counts: &ResourceCounts,
    faults: &mut Vec<ValidationError>,
) -> BTreeMap<ResourceName, Arc<RuntimeHandler>> {
    let former: HashMap<Digest, &Arc<RuntimeHandler>> =
        former.iter().flat_map(|former| &former.handlers).map(|kept| (kept.signature, kept)).collect();
    let former = &former;
    let open = specs.iter().map(|spec| async move {
        let signature = spec.signature();
        if let Some(kept) = former.get(&signature) {
            return (spec, Ok((*kept).clone()));
        }
        let name: Arc<str> = spec.name.to_string().into();
        let opened = connect.connect(spec).await;
        let handler = opened.map(|target| {
            let (counts, denial_name) = (counts.handlers.of(&name), spec.denial_name());
            let mut handler = RuntimeHandler::new(name, signature, target);
            (handler.counts, handler.denial_name) = (counts, denial_name);
            Arc::new(handler)
        });
        (spec, handler)
    });
    let mut handlers = BTreeMap::new();
    for (spec, opened) in join_all(open).await {
        match opened {
            Ok(handler) => drop(handlers.insert(spec.name.clone(), handler)),
            Err(refused) => faults.extend(refused),
        }
    }
    handlers
}
