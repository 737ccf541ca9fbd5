//! Handlers being opened: new ones before old ones close.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use futures_util::future::join_all;

use super::handlers::{HandlerSpec, Use};
use crate::{
    config::{Fault, ResourceName},
    handler::{BoxFuture, Digest},
    host::Host,
    mixer::{
        handler::{InProcess, RuntimeHandler, Target},
        snapshot::Snapshot,
    },
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

/// Opens handlers in this process only.
impl Connect for Arc<Host> {
    fn connect<'a>(&'a self, spec: &'a HandlerSpec) -> BoxFuture<'a, Result<Opened, OpenFault>> {
        Box::pin(async move {
            match &spec.used {
                Use::InProcess { adapter, config } => {
                    let handler = self.handlers().open(adapter, config.clone()).await;
                    let handler = handler.map_err(|error| spec.refusal(&error))?;
                    Ok(Box::new(InProcess::new(self.clone(), handler)) as Opened)
                }
                Use::Remote { .. } => {
                    Err(vec![spec.fault("adapter", "adapters elsewhere are not called from here")])
                }
            }
        })
    }
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
        (spec, opened.map(|target| Arc::new(RuntimeHandler::new(name, signature, target))))
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
