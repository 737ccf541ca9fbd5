//! The server: binds its ports, runs, and ends in order.

use std::{
    convert::Infallible,
    io,
    sync::Arc,
    time::{Duration, SystemTime},
};

use axum::{Router, response::IntoResponse, routing::any};
use http::Request;
use parking_lot::Mutex;
use prometheus_client::{collector::Collector, registry::Registry};
use tokio::{net::TcpListener, runtime::Handle, time::Instant};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::{body::Body, server::NamedService, service::Routes};
use tower_layer::{Identity, Layer};
use tower_service::Service;

use super::{
    Readiness, ServerOptions,
    additional::AdditionalServices,
    admin::{self, Admin, AdminSecurity, FailureCounters},
    backend, decisions, engine_metrics,
    expiry::keep_time,
    explain,
    grpc::{GrpcService, HostMethods},
    host_metrics,
    metrics_encoder::{Families, Scraped},
    process_metrics,
    rpc::Rpcs,
    service_list::{descriptors, reflection, service_group, service_names},
};
use mixer_adapter_core::metrics::Events;
use mixer_adapter_engine::{ConfigStatus, Mixer, RequestLimits};
use mixer_adapter_host::{Host, handler::BoxFuture};
use mixer_adapter_net::{
    Authorization, Connection, HttpService, LimitHits, ListenAddress, Listener, OwnThread, Workers, tls,
};
use mixer_adapter_streams::stream::metrics::McpMetrics;

/// A server that could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// An address that cannot be listened on.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: ListenAddress,
        /// The reason.
        source: io::Error,
    },
    /// A thread or a socket for the admin port that the system does not provide.
    #[error("cannot serve the admin port")]
    Admin(#[source] io::Error),
}

/// A server that does not listen yet.
pub struct Server {
    host: Arc<Host>,
    mixer: Option<Arc<Mixer>>,
    config: Option<Arc<Mutex<ConfigStatus>>>,
    options: ServerOptions,
    readiness: Readiness,
    pub(super) additional: AdditionalServices,
    tls: Option<Arc<tls::Server>>,
    authorization: Arc<Authorization>,
    admin: AdminSecurity,
    /// How often the limits of its ports were hit, which it has a metric of.
    pub(crate) hits: Arc<LimitHits>,
}

mixer_adapter_core::framework::debug_fields!(Server { host, options });

impl Server {
    /// Creates a server for the adapters of a host.
    pub fn new(host: Arc<Host>, options: ServerOptions) -> Self {
        let readiness = Readiness::default();
        let adapters = host.clone();
        readiness.warn(move || adapters.adapters().warnings());
        Self {
            host,
            mixer: None,
            config: None,
            options,
            readiness,
            additional: AdditionalServices::default(),
            tls: None,
            authorization: Arc::new(Authorization::open(service_group)),
            admin: AdminSecurity::default(),
            hits: Arc::default(),
        }
    }

    /// Serves TLS on the gRPC port, or plain text without; `authorization` decides which clients may call which services.
    #[must_use]
    pub fn secured(mut self, tls: Option<Arc<tls::Server>>, authorization: Arc<Authorization>) -> Self {
        (self.tls, self.authorization) = (tls, authorization);
        self
    }

    /// Protects the admin port, which is open to every client otherwise.
    #[must_use]
    pub fn secured_admin(mut self, admin: AdminSecurity) -> Self {
        self.admin = admin;
        self
    }

    /// Serves the Mixer API, too.
    #[must_use]
    pub fn mixer(mut self, mixer: Arc<Mixer>) -> Self {
        self.mixer = Some(mixer);
        self
    }

    /// Shows on the metrics page how many spans were not exported.
    #[must_use]
    pub(crate) fn lost_spans(mut self, lost: Events) -> Self {
        self.additional.collectors.push(Box::new(Scraped(move |families: &mut Families<'_>| {
            families.counter("mixer_adapter_spans_lost", lost.count())
        })));
        self
    }

    /// Shows the status of the configuration on `/config`.
    #[must_use]
    pub(crate) fn config_status(mut self, status: Arc<Mutex<ConfigStatus>>) -> Self {
        self.config = Some(status);
        self
    }

    /// Serves a gRPC service of the program on the gRPC port, too, with health and the limits of the port. A client may call it if it may call
    /// the group `templates`.
    #[must_use]
    pub fn add_service<S>(mut self, service: S) -> Self
    where
        S: Service<Request<Body>, Response: IntoResponse, Error = Infallible, Future: Send + 'static>
            + NamedService
            + Clone
            + Send
            + Sync
            + 'static,
    {
        self.additional.names.push(S::NAME);
        self.additional.routes.push(Box::new(move |routes| routes.add_service(service)));
        self
    }

    /// Shows metrics of the program on `/metrics`, too. Their names must not begin with `mixer_adapter_` or `adapter_`.
    #[must_use]
    pub fn add_collector(mut self, collector: Box<dyn Collector>) -> Self {
        self.additional.collectors.push(collector);
        self
    }

    /// Returns the tasks that `/readyz` waits for.
    pub fn readiness(&self) -> &Readiness {
        &self.readiness
    }

    /// Listens on the gRPC address, and on the admin address if there is one. Port 0 takes a free port.
    ///
    /// # Errors
    /// An address that cannot be listened on.
    pub async fn bind(
        self,
        grpc: impl Into<ListenAddress>,
        admin: Option<ListenAddress>,
    ) -> Result<Bound, ServerError> {
        let admin = match admin {
            Some(address) => Some(listen(address).await?),
            None => None,
        };
        Ok(Bound { grpc: listen(grpc.into()).await?, admin, server: self })
    }

    /// Uses sockets that listen already, such as those of a supervisor or a test: the gRPC port, and the admin port if there is one.
    pub fn bind_to(self, grpc: TcpListener, admin: Option<TcpListener>) -> Bound {
        Bound { grpc: grpc.into(), admin: admin.map(Listener::from), server: self }
    }
}

/// A server that listens; it accepts connections once it [runs](Self::run).
#[derive(Debug)]
pub struct Bound {
    grpc: Listener,
    admin: Option<Listener>,
    server: Server,
}

impl Bound {
    /// Returns the gRPC address, with the port that the system chose for port 0.
    ///
    /// # Errors
    /// The system cannot return the address.
    pub fn grpc_address(&self) -> io::Result<ListenAddress> {
        self.grpc.address()
    }

    /// Returns the admin address, with the port that the system chose for port 0.
    ///
    /// # Errors
    /// The system cannot return the address.
    pub fn admin_address(&self) -> io::Result<Option<ListenAddress>> {
        self.admin.as_ref().map(Listener::address).transpose()
    }

    /// Returns whether the admin port is served over TLS.
    pub(crate) fn has_admin_tls(&self) -> bool {
        self.server.admin.tls.is_some()
    }

    /// Serves until `stop` is cancelled, then ends in order: not ready, no new connections, calls in flight finish,
    /// sessions and handlers close. All of it takes at most [`ServerOptions::grace`].
    ///
    /// # Errors
    /// A thread or a socket for the admin port that the system does not provide.
    pub async fn run(self, workers: &Workers, stop: CancellationToken) -> Result<(), ServerError> {
        self.run_with_layer(workers, Identity::new(), stop).await
    }

    /// Like [`run`](Self::run), with a layer around the gRPC services of each connection, unary methods included.
    ///
    /// ```
    /// use http::Request;
    /// use mixer_adapter::service::{Server, ServerOptions, Workers};
    /// use mixer_adapter_host::{Host, handler::{Adapters, Closing, TableLimits}};
    /// use std::{net::SocketAddr, sync::Arc, task::{Context, Poll}};
    /// use tower_service::Service;
    ///
    /// /// Logs the path of each request.
    /// #[derive(Clone)]
    /// struct Logged<S>(S);
    ///
    /// impl<S: Service<Request<B>>, B> Service<Request<B>> for Logged<S> {
    ///     type Response = S::Response;
    ///     type Error = S::Error;
    ///     type Future = S::Future;
    ///
    ///     fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
    ///         self.0.poll_ready(context)
    ///     }
    ///
    ///     fn call(&mut self, request: Request<B>) -> S::Future {
    ///         tracing::info!(path = request.uri().path(), "request");
    ///         self.0.call(request)
    ///     }
    /// }
    ///
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let runtime = tokio::runtime::Handle::current();
    /// let adapters = Adapters::builder(runtime.clone()).build()?; // .add::<MyAdapter>()
    /// let host = Arc::new(Host::new(adapters, TableLimits::default(), Closing::on(runtime)));
    /// let address = SocketAddr::from(([127, 0, 0, 1], 0));
    /// let bound = Server::new(host, ServerOptions::default()).bind(address, None).await?;
    ///
    /// let stop = tokio_util::sync::CancellationToken::new();
    /// # stop.cancel();
    /// bound.run_with_layer(&Workers::start(2)?, tower_layer::layer_fn(Logged), stop).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub async fn run_with_layer<L>(
        self,
        workers: &Workers,
        layer: L,
        stop: CancellationToken,
    ) -> Result<(), ServerError>
    where
        L: Layer<GrpcService, Service: HttpService> + Clone + Send + 'static,
    {
        let Self { grpc: listener, admin, mut server } = self;
        if is_unprotected(&server.authorization, listener.address().ok().as_ref()) {
            tracing::warn!(
                "clients of the gRPC port are not authenticated, and it is open to other machines: see --tls-client-ca-file, --token-file and --jwks"
            );
        }
        let (health_reporter, health) = tonic_health::server::health_reporter();
        let additional = std::mem::take(&mut server.additional);
        let services = service_names(&server.host, server.mixer.is_some(), &additional.names);
        for service in &services {
            health_reporter.set_service_status(service, tonic_health::ServingStatus::Serving).await;
        }
        let routes = reflection(health, descriptors(&server.host, &additional.descriptors));
        let AdditionalServices { rpcs, collectors, failure_counters, stops, finish, .. } = additional;
        let routes = additional.routes.into_iter().fold(routes, |routes, add| add(routes));
        let service = server.grpc_service(rpcs, routes, &listener);
        let registry = server.registry(collectors);
        let draining = CancellationToken::new();
        let background = TaskTracker::new();
        if let Some(listener) = admin {
            server.serve_admin(listener, registry, failure_counters, &draining, &background)?;
        }
        let Server { host, mixer, options, readiness, tls, authorization, hits, .. } = server;
        let (keep_time, stop_keeping) =
            (keep_time(Arc::downgrade(&host), options.session_idle), draining.clone());
        background.spawn(async move { stop_keeping.run_until_cancelled(keep_time).await });

        let host_of_sessions = host.clone();
        let make_service = move |connection: &Connection| {
            let guard = OpenConnection { host: host_of_sessions.clone(), id: connection.id };
            layer.layer(service.on_connection(connection).with_guard(guard))
        };
        let stop_following = draining.clone();
        background.spawn(async move { stop_following.run_until_cancelled(authorization.watch()).await });
        let listener = match tls {
            Some(tls) => listener.with_tls(tls),
            None => listener,
        };
        let serve = listener.count_limits(hits).serve(
            options.connection_limits(),
            workers,
            make_service,
            stop.clone(),
        );
        let withdraw = async {
            stop.cancelled().await;
            let deadline = Instant::now() + options.grace;
            let shutdown = readiness.register("shutdown");
            stops.into_iter().for_each(|stop| stop());
            for service in &services {
                health_reporter.set_service_status(service, tonic_health::ServingStatus::NotServing).await;
            }
            (deadline, shutdown)
        };
        let ((), (deadline, _never_ready_again)) = tokio::join!(serve, withdraw);
        close(&host, mixer.as_deref(), finish, deadline).await;
        draining.cancel();
        background.close();
        if tokio::time::timeout(LAST_GRACE, background.wait()).await.is_err() {
            tracing::debug!("the admin port was cut off");
        }
        Ok(())
    }
}

impl Server {
    /// Returns whether a port serves explanations.
    fn explains(&self, listener: &Listener) -> bool {
        self.options.explain || listener.address().is_ok_and(|address| address.is_local())
    }

    /// Joins the services of the gRPC port.
    fn grpc_service(&self, mut rpcs: Rpcs, routes: Routes, listener: &Listener) -> GrpcService {
        rpcs.extend(backend::methods(&self.host));
        rpcs.extend(self.mixer.iter().flat_map(super::mixer::methods));
        if self.explains(listener) {
            rpcs.extend(self.mixer.iter().flat_map(explain::methods));
        }
        let limits = self.mixer.as_ref().map_or_else(RequestLimits::default, |mixer| *mixer.limits());
        let max_instances = limits.instances;
        let methods = HostMethods { host: self.host.clone(), rpcs, max_instances, is_mounted: false };
        GrpcService::new(
            methods,
            Some(self.authorization.clone()),
            self.options.call_limits(),
            routes.prepare(),
        )
    }

    /// Joins the metrics for the admin port.
    fn registry(&self, collectors: Vec<Box<dyn Collector>>) -> Registry {
        let mut registry = host_metrics::registry(&self.host);
        registry.register_collector(Box::new(Scraped(process_metrics::encode)));
        registry.register_collector(Box::new(McpMetrics));
        collectors.into_iter().for_each(|collector| registry.register_collector(collector));
        if let Some(mixer) = self.mixer.clone() {
            let config = self.config.clone();
            registry.register_collector(Box::new(Scraped(move |families: &mut Families<'_>| {
                engine_metrics::encode(&mixer, config.as_ref(), families)
            })));
        }
        host_metrics::add_limits(&mut registry, self.hits.clone());
        registry
    }

    /// Serves the admin port on another thread until `draining` is cancelled.
    fn serve_admin(
        &self,
        listener: Listener,
        registry: Registry,
        failure_counters: Vec<FailureCounters>,
        draining: &CancellationToken,
        background: &TaskTracker,
    ) -> Result<(), ServerError> {
        let AdminSecurity { tls, tokens } = self.admin.clone();
        let is_private = tokens.is_some() || self.explains(&listener);
        let explained = self.mixer.as_ref().filter(|_| is_private);
        let listener = match tls {
            Some(tls) => listener.with_tls(tls),
            None => listener,
        };
        if let Some(tokens) = tokens.clone() {
            let draining = draining.clone();
            background.spawn(async move { draining.run_until_cancelled(tokens.watch()).await });
        }
        let started = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let admin = Admin {
            started: started.map_or(0, |time| time.as_secs()),
            explain: explained.is_some(),
            host: self.host.clone(),
            readiness: self.readiness.clone(),
            config: self.config.clone(),
            mixer: self.mixer.clone(),
            hits: self.hits.clone(),
            failure_counters: failure_counters.into(),
            activity: Arc::default(),
        };
        let observe = admin.clone().observe();
        let private = match explained {
            Some(mixer) => {
                explain::router(mixer.clone(), Handle::current()).merge(decisions::router(mixer.clone()))
            }
            None => Router::new()
                .route("/explain", any(explain::refusal))
                .route("/decisions", any(explain::refusal)),
        };
        let (router, draining) = (admin::router(admin, registry, private, tokens), draining.clone());
        let thread = OwnThread::start("admin").map_err(ServerError::Admin)?;
        let runtime = thread.runtime().clone();
        let serve = async move {
            let _thread = thread;
            // Sockets belong to the runtime that polls them.
            match listener.moved() {
                Ok(listener) => tokio::select! {
                    () = admin::serve(listener, router, draining) => {}
                    () = observe => {}
                },
                Err(error) => tracing::error!(%error, "the admin port cannot be served"),
            }
        };
        background.spawn_on(serve, &runtime);
        Ok(())
    }
}

async fn listen(address: ListenAddress) -> Result<Listener, ServerError> {
    match Listener::bind(&address).await {
        Ok(listener) => Ok(listener),
        Err(source) => Err(ServerError::Listen { address, source }),
    }
}

/// Reports the received entries, and closes the handlers, until the deadline.
async fn close(host: &Host, mixer: Option<&Mixer>, finish: Vec<BoxFuture<'static, ()>>, deadline: Instant) {
    for finish in finish {
        if tokio::time::timeout_at(deadline, finish).await.is_err() {
            tracing::warn!("what was received took too long to report; some of it is lost");
        }
    }
    if let Some(mixer) = mixer {
        mixer.close();
    }
    let unclosed = host.close(deadline.saturating_duration_since(Instant::now())).await;
    if unclosed > 0 {
        tracing::warn!(unclosed, "handlers took too long to close; their buffered data may be lost");
    }
}

/// How long the admin port has to end when everything else has.
const LAST_GRACE: Duration = Duration::from_millis(250);

/// A connection that can own claims on sessions, until this is dropped.
struct OpenConnection {
    host: Arc<Host>,
    id: u64,
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.host.end_connection(self.id);
    }
}

/// Whether other machines can connect, and nothing authenticates their clients. An unknown address counts as open.
fn is_unprotected(authorization: &Authorization, address: Option<&ListenAddress>) -> bool {
    !authorization.authenticates() && !address.is_some_and(ListenAddress::is_local)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use mixer_adapter_net::Tokens;

    #[test]
    fn only_an_open_port_without_authentication_is_unprotected() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("tokens");
        std::fs::write(&file, "mixer s3cr3t\n").unwrap();
        let open = Authorization::open(service_group);
        let authenticating =
            Authorization::open(service_group).with_tokens(Tokens::load(file, None).unwrap());
        let tcp = |address: &str| ListenAddress::Tcp(address.parse().unwrap());
        for (address, expected) in [
            (tcp("0.0.0.0:9091"), true),
            (tcp("[::]:9091"), true),
            (tcp("192.0.2.1:9091"), true),
            (tcp("127.0.0.1:9091"), false),
            (tcp("[::1]:9091"), false),
            (ListenAddress::Unix("/run/mixer-adapter.sock".into()), false),
        ] {
            assert_eq!(is_unprotected(&open, Some(&address)), expected, "{address}");
            assert!(!is_unprotected(&authenticating, Some(&address)), "{address}");
        }
        assert!(is_unprotected(&open, None));
    }
}
