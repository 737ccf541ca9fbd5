//! Handlers being opened: new ones before old ones close.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use futures_util::future::join_all;
use prost::Message as _;

use super::handlers::{HandlerSpec, Use};
use crate::{
    handler::{Elsewhere, InProcess, RuntimeHandler, Target},
    remote::{self, OpenError, RemoteAdapter, Session},
    snapshot::Snapshot,
};
use mixer_adapter_config::{Fault, ResourceName};
use mixer_adapter_core::{adapter::ConfigErrors, framework::digest::Digest};
use mixer_adapter_host::{
    Host, NewSession,
    handler::{BoxFuture, Closing},
};

/// What answers a handler's calls, opened.
pub type Opened = Box<dyn Target>;

/// Why a handler could not be opened: faults of its resource.
pub type OpenFault = Vec<Fault>;

/// Opens handlers.
pub trait Connect: Send + Sync {
    /// Opens one. An adapter elsewhere that cannot be reached is no fault: its handler waits for it.
    fn connect<'a>(&'a self, spec: &'a HandlerSpec) -> BoxFuture<'a, Result<Opened, OpenFault>>;
}

/// Opens handlers in this process and elsewhere.
pub struct Connector {
    /// The adapters of this process.
    pub host: Arc<Host>,
    /// How adapters elsewhere are called.
    pub remote: remote::Options,
    /// Where connections are kept, and sessions ended.
    pub closing: Closing,
}

impl Connect for Connector {
    fn connect<'a>(&'a self, spec: &'a HandlerSpec) -> BoxFuture<'a, Result<Opened, OpenFault>> {
        Box::pin(async move {
            match &spec.used {
                Use::InProcess { adapter, config } => {
                    let handler = self.host.handlers().open(adapter, config.clone()).await;
                    let handler = handler.map_err(|error| spec.refusal(&error))?;
                    Ok(Box::new(InProcess::new(self.host.clone(), handler)) as Opened)
                }
                Use::Remote { connection, adapter_config, session_based: false } => {
                    let adapter = RemoteAdapter::new(connection, &self.remote, self.closing.runtime())
                        .map_err(|errors| faults(spec, errors))?;
                    let config = adapter_config.as_ref().map(|any| any.encode_to_vec().into());
                    Ok(Box::new(Elsewhere::new(adapter, config)) as Opened)
                }
                Use::Remote { connection, adapter_config, session_based: true } => {
                    let types = spec.instances.iter().map(|(name, (_, any))| (name.clone(), any.clone()));
                    let new = NewSession {
                        adapter_config: adapter_config.clone(),
                        inferred_types: types.collect(),
                    };
                    match Session::open(connection, new, &self.remote, &self.closing).await {
                        Ok(session) => Ok(Box::new(session) as Opened),
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

/// The faults of a connection, whose fields are named from the spec on.
fn faults(spec: &HandlerSpec, errors: ConfigErrors) -> Vec<Fault> {
    let violations = errors.into_violations().into_iter();
    violations.map(|violation| spec.fault(&violation.field, violation.reason)).collect()
}

/// Opens all handlers at the same time, but for those that the former snapshot has already.
pub(super) async fn open_all(
    specs: &[Arc<HandlerSpec>],
    former: Option<&Snapshot>,
    connect: &dyn Connect,
    faults: &mut Vec<Fault>,
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
            let handler = RuntimeHandler::new(name, signature, target);
            Arc::new(handler.with_denial_name(spec.denial_name()))
        });
        (spec, handler)
    });
    let mut handlers = BTreeMap::new();
    for (spec, opened) in join_all(open).await {
        match opened {
            Ok(handler) => {
                handlers.insert(spec.name.clone(), handler);
            }
            Err(refused) => faults.extend(refused),
        }
    }
    handlers
}
