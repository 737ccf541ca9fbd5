//! The gRPC services of a server: methods of templates and backends by path, everything else by tonic's router.

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use tonic::{Code, Status, service::Routes};

use super::{
    ServerOptions, backend,
    expiry::keep_time,
    limits::count_fields,
    rpc::{Rpc, Rpcs},
};
use mixer_adapter_engine::{RequestLimit, RequestLimits};
use mixer_adapter_host::{
    Host,
    handler::{Caller, Method},
};
use mixer_adapter_net::grpc::{self, CallLimits, Methods, Reply, UnaryService};

/// All gRPC services of a server as one tower service, which layers can be put around.
pub type GrpcService = UnaryService<HostMethods, Routes>;

/// The unary methods of a host: templates, and other methods by path.
#[derive(Clone)]
pub struct HostMethods {
    pub(super) host: Arc<Host>,
    pub(super) rpcs: Rpcs,
    /// Maximum number of instances in a call of a template.
    pub(super) max_instances: usize,
    /// Whether another server accepts the connections.
    pub(super) is_mounted: bool,
}

/// The field of the instances in every request of a template (docs/behaviour/templates.md).
const INSTANCES: u32 = 1;

impl HostMethods {
    /// Refuses a call of a template with too many instances.
    fn admit(&self, method: &dyn Method, message: &[u8]) -> Result<(), Status> {
        let instances = count_fields(message, INSTANCES, self.max_instances);
        RequestLimit::Instances.check(instances, self.max_instances).map_err(|error| {
            for (adapter, metrics) in method.metrics() {
                if adapter.is_empty() {
                    metrics.record(Code::ResourceExhausted, Duration::ZERO);
                }
            }
            Status::resource_exhausted(error.to_string())
        })
    }
}

mixer_adapter_core::framework::debug_fields!(HostMethods { host });

/// A method of a host.
pub enum HostMethod {
    /// A method of a template service.
    Template {
        /// Its path.
        path: &'static str,
        /// Calls it.
        method: Arc<dyn Method>,
    },
    /// A method of another service.
    Rpc {
        /// Its path.
        path: &'static str,
        /// Calls it.
        rpc: Rpc,
        /// Whether it creates sessions.
        creates_session: bool,
    },
}

impl fmt::Debug for HostMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Template { path, .. } | Self::Rpc { path, .. }) = self;
        f.write_str(path)
    }
}

impl Methods for HostMethods {
    type Method = HostMethod;

    fn find(&self, path: &str) -> Option<HostMethod> {
        if let Some((path, method)) = self.host.adapters().method_at(path) {
            return Some(HostMethod::Template { path, method: method.clone() });
        }
        let (path, rpc) = self.rpcs.get_key_value(path)?;
        Some(HostMethod::Rpc { path, rpc: rpc.clone(), creates_session: *path == backend::CREATE_SESSION })
    }

    fn keeps_connection(&self, method: &HostMethod) -> bool {
        matches!(method, HostMethod::Rpc { creates_session: true, .. })
    }

    fn has_one_message(&self, path: &str) -> bool {
        path.starts_with("/grpc.health.v1.Health/")
    }

    async fn call(&self, method: HostMethod, message: Bytes, caller: Caller) -> Result<Reply, Status> {
        let caller = if self.is_mounted { caller.of_other_server() } else { caller };
        let (HostMethod::Template { path, .. } | HostMethod::Rpc { path, .. }) = method;
        let trace = caller.trace;
        crate::otlp::in_span(path, trace, || self.answer(method, message, caller)).await
    }
}

impl HostMethods {
    async fn answer(&self, method: HostMethod, message: Bytes, caller: Caller) -> Result<Reply, Status> {
        match method {
            HostMethod::Template { method, .. } => {
                self.admit(&*method, &message)?;
                Ok(method.call(message, &*self.host, caller).await?.into())
            }
            HostMethod::Rpc { rpc, .. } => grpc::within(caller.deadline, rpc(message, caller)).await,
        }
    }
}

/// Returns the services of the adapters of a host, templates and `InfrastructureBackend`, to mount in a server of tonic or axum. Other paths
/// are UNIMPLEMENTED.
///
/// The limits of calls in `options` hold, and sessions expire after [`ServerOptions::session_idle`]. The server that mounts the services
/// authenticates clients, and limits connections; a call finds sessions by their id only, because its connection is unknown here. It
/// closes the handlers with [`Host::close`] after its last call.
///
/// ```
/// use axum::{Router, routing::get};
/// use mixer_adapter::service::{ServerOptions, adapter_services};
/// use mixer_adapter_host::{Host, handler::{Adapters, Closing, TableLimits}};
/// use std::sync::Arc;
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let runtime = tokio::runtime::Handle::current();
/// let adapters = Adapters::builder(runtime.clone()).build()?; // .add::<MyAdapter>()
/// let host = Arc::new(Host::new(adapters, TableLimits::default(), Closing::on(runtime)));
/// let app: Router = Router::new()
///     .route("/hello", get(async || "hello"))
///     .fallback_service(adapter_services(host, &ServerOptions::default()));
/// # Ok(())
/// # }
/// ```
pub fn adapter_services(host: Arc<Host>, options: &ServerOptions) -> GrpcService {
    let keep_time = keep_time(Arc::downgrade(&host), options.session_idle);
    host.closing().runtime().spawn(keep_time);
    services(host, options.call_limits(), true)
}

/// Returns the same services for calls from this process.
pub(crate) fn local_services(host: Arc<Host>) -> GrpcService {
    services(host, ServerOptions::default().call_limits(), false)
}

fn services(host: Arc<Host>, limits: CallLimits, is_mounted: bool) -> GrpcService {
    let rpcs = backend::methods(&host).into_iter().collect();
    let max_instances = RequestLimits::default().instances;
    UnaryService::new(HostMethods { host, rpcs, max_instances, is_mounted }, None, limits, Routes::default())
}

impl ServerOptions {
    pub(super) fn call_limits(&self) -> CallLimits {
        CallLimits {
            max_message_size: self.max_message_size,
            max_concurrent: self.max_concurrent_calls,
            max_waiting: self.max_waiting_calls,
            max_bytes: self.max_call_bytes,
            body_timeout: self.body_timeout,
            timeout: self.call_timeout,
        }
    }
}
