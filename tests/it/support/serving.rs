use std::{net::SocketAddr, sync::Arc, time::Duration};

use mixer_adapter::service::{Server, ServerError, ServerOptions, Workers};
use mixer_adapter_host::{
    Host,
    handler::{Adapters, AdaptersBuilder, Closing, TableLimits},
    session::SessionOptions,
};
use tokio::{runtime::Handle, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use super::{Client, http};

/// A running server on free ports of this machine; it stops when this is dropped.
pub struct Serving {
    pub grpc: SocketAddr,
    pub admin: SocketAddr,
    pub host: Arc<Host>,
    stop: CancellationToken,
    task: JoinHandle<Result<(), ServerError>>,
}

impl Serving {
    /// Serves adapters with the defaults.
    pub async fn start(add: impl FnOnce(AdaptersBuilder) -> AdaptersBuilder) -> Self {
        Self::with(add, ServerOptions::default(), TableLimits::default()).await
    }

    pub async fn with(
        add: impl FnOnce(AdaptersBuilder) -> AdaptersBuilder,
        options: ServerOptions,
        limits: TableLimits,
    ) -> Self {
        Self::on(&Workers::here(), add, options, limits).await
    }

    /// Serves calls on those threads.
    pub async fn on(
        workers: &Workers,
        add: impl FnOnce(AdaptersBuilder) -> AdaptersBuilder,
        options: ServerOptions,
        limits: TableLimits,
    ) -> Self {
        let adapters = add(Adapters::builder(Handle::current())).build().unwrap();
        Self::of(workers, Host::new(adapters, limits, Closing::on(Handle::current())), options).await
    }

    /// Serves adapters with options of sessions.
    pub async fn with_sessions(
        add: impl FnOnce(AdaptersBuilder) -> AdaptersBuilder,
        sessions: SessionOptions,
    ) -> Self {
        let adapters = add(Adapters::builder(Handle::current())).build().unwrap();
        let host = Host::new(adapters, TableLimits::default(), Closing::on(Handle::current()));
        Self::of(&Workers::here(), host.with_session_options(sessions), ServerOptions::default()).await
    }

    async fn of(workers: &Workers, host: Host, options: ServerOptions) -> Self {
        let host = Arc::new(host);
        Self::server(workers, host.clone(), Server::new(host, options)).await
    }

    /// Serves a server of that host.
    pub async fn server(workers: &Workers, host: Arc<Host>, server: Server) -> Self {
        let local = SocketAddr::from(([127, 0, 0, 1], 0));
        let bound = server.bind(local, Some(local.into())).await.unwrap();
        let (grpc, admin) = (bound.grpc_address().unwrap(), bound.admin_address().unwrap().unwrap());
        let (grpc, admin) = (grpc.tcp().unwrap(), admin.tcp().unwrap());
        let (stop, workers) = (CancellationToken::new(), workers.clone());
        let stopped = stop.clone();
        let task = tokio::spawn(async move { bound.run(&workers, stopped).await });
        Self { grpc, admin, host, stop, task }
    }

    /// A new connection.
    pub async fn connect(&self) -> Client {
        Client::connect(self.grpc).await
    }

    /// A page of the admin port.
    pub async fn get(&self, path: &str) -> (u16, String) {
        http::get(self.admin, path).await
    }

    /// The value of one series on the metrics page, named as it stands there; zero where it does not.
    pub async fn metric(&self, series: &str) -> f64 {
        let (_, page) = self.get("/metrics").await;
        let line = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.map_or(0.0, |value| value.parse().unwrap())
    }

    /// Stops the server, without waiting for it.
    pub fn begin_stop(&self) {
        self.stop.cancel();
    }

    /// Stops the server and waits until it has.
    pub async fn stop(mut self) {
        self.stop.cancel();
        (&mut self.task).await.unwrap().unwrap();
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Waits until something is so, which may take up to ten seconds on a busy machine.
pub async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..10_000 {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("in vain waited until {what}");
}
