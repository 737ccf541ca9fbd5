use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::{runtime::Handle as Runtime, sync::Mutex};

use super::{
    Answer, Attributes, InjectedFault, NoAdapter, RejectedConfigError, RequestBuilder, Setup,
    backend::Backend, call::recorded, connect::TestConnector, resources::NAMESPACE,
};
use crate::{
    answer::Verdict,
    service::mixer::{report_request, trace_report},
};
use mixer_adapter_config::{self as config, Apply as _, Change, Resource, Update};
use mixer_adapter_core::adapter::{Adapter, Grant};
use mixer_adapter_engine::{
    Controller, Mixer,
    build::{BuildOptions, Connector},
    dictionary::WORDS,
    remote::{self, Backoff},
    trace::Trace,
};
use mixer_adapter_host::{
    Host,
    handler::{Caller, Closing},
};

/// The engine with a test's configuration: it answers Check, Report and quota requests as a Mixer does, calls adapters, and
/// explains its answers.
///
/// Everything except the network is real: requests are encoded as by a proxy, rules and expressions are evaluated, and
/// in-process adapters are called by gRPC over pipes, with the same client and server as over TCP. The clock of tokio can be
/// paused (`#[tokio::test(start_paused = true)]`), so that a test with a timeout of a minute takes no time.
pub struct FakeMixer {
    pub(super) mixer: Arc<Mixer>,
    host: Arc<Host>,
    backend: Arc<Backend>,
    controller: Mutex<Controller>,
    /// The runtime of connections and of closing sessions.
    closing: Closing,
    /// Resources that are added to each configuration, unless it has resources of the same names.
    base: Vec<Resource>,
    requests: AtomicU64,
}

/// Limit for the closing of handlers.
const CLOSED_WITHIN: Duration = Duration::from_secs(10);

impl FakeMixer {
    /// Begins a Mixer with an in-process adapter; [`Setup::and`] adds others.
    pub fn with<A: Adapter>() -> Setup<A> {
        Setup::new().and::<A>()
    }

    /// Begins a Mixer with an in-process adapter and the state of its program, of which a test replaces parts: a service, a clock.
    pub fn with_state<A: Adapter<S>, S: Send + Sync + 'static>(state: S) -> Setup<A, S> {
        Setup::new().and_with(state)
    }

    /// Begins a Mixer with a configuration in YAML or JSON and without in-process adapters: handlers call the addresses of
    /// their connections.
    pub fn configured(text: &str) -> Setup<NoAdapter> {
        Setup::new().config(text)
    }

    pub(super) fn new(
        host: Arc<Host>,
        base: Vec<Resource>,
        address: Option<String>,
        options: BuildOptions,
    ) -> Self {
        let closing = Closing::on(Runtime::current());
        let backend = Backend::new(host.clone());
        let backoff = Backoff { first: Duration::from_millis(1), longest: Duration::from_millis(10) };
        let mut local = remote::Options::default();
        local.transport = Some(backend.transport(closing.runtime().clone()));
        local.resolver = remote::Resolver::new(|_, _| async { Ok(vec![([127, 0, 0, 1], 1).into()]) });
        local.reconnect = backoff;
        local.setup_backoff = backoff;
        let connector = |remote| Connector { host: host.clone(), remote, closing: closing.clone() };
        let connector = TestConnector {
            host: host.clone(),
            local: connector(local),
            remote: connector(remote::Options::default()),
            address,
        };
        let mixer = Arc::new(Mixer::new());
        let controller = Controller::new(mixer.clone(), host.clone(), Arc::new(connector), options);
        let (controller, requests) = (Mutex::new(controller), AtomicU64::new(0));
        Self { mixer, host, backend, controller, closing, base, requests }
    }

    /// Sends a Check.
    pub fn check(&self, attributes: impl Into<Attributes>) -> RequestBuilder<'_, Verdict> {
        RequestBuilder::new(self, attributes.into(), self.dedup_id())
    }

    /// Sends a Check with a quota request: the short name of an instance, and an amount. A denied check is an error with the
    /// code of the denial.
    pub fn quota(
        &self,
        name: &str,
        amount: i64,
        attributes: impl Into<Attributes>,
    ) -> RequestBuilder<'_, Grant> {
        RequestBuilder::new(self, attributes.into(), self.dedup_id()).quota(name, amount)
    }

    /// Sends a Report of one request or, given several, of a batch.
    pub async fn report(&self, batch: impl IntoIterator<Item = Attributes>) -> Answer<()> {
        let requests: Vec<_> = batch.into_iter().map(Attributes::into_written).collect();
        let request = report_request(&requests, WORDS.len());
        let report = trace_report(&self.mixer, request, Caller::default(), Trace::default());
        let ((result, trace), calls) = recorded(report).await;
        Answer { result: result.map(drop), calls, trace }
    }

    /// Injects a fault into the next gRPC call of an adapter; several faults apply to one call each. Handlers with
    /// `compiledAdapter` are called without gRPC and have no faults.
    pub fn inject(&self, fault: InjectedFault) {
        self.backend.faults.lock().push_back(fault);
    }

    /// Replaces the configuration with another one in YAML or JSON. A rejected one changes nothing.
    ///
    /// # Errors
    /// If the configuration has errors.
    pub async fn reload(&self, text: &str) -> Result<(), RejectedConfigError> {
        let parsed = config::parse(text, "the test", NAMESPACE);
        self.configure(parsed.resources, parsed.faults).await
    }

    pub(super) async fn configure(
        &self,
        mut resources: Vec<Arc<Resource>>,
        faults: Vec<config::ValidationError>,
    ) -> Result<(), RejectedConfigError> {
        for base in &self.base {
            if !resources.iter().any(|resource| resource.name == base.name) {
                resources.push(base.clone().into());
            }
        }
        let update = Update { source: "the test".into(), changes: Change::full_sets(resources), faults };
        self.controller.lock().await.apply(update).await.map_err(|faults| RejectedConfigError { faults })
    }

    /// The host of the in-process adapters, with their handlers and sessions.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// Closes all handlers and waits for them, so that a test can check their effects.
    ///
    /// # Panics
    /// If they do not close within ten seconds.
    pub async fn close(self) {
        self.mixer.close();
        // CloseSession, which closes handlers in turn.
        let sessions = self.closing.finish(CLOSED_WITHIN).await;
        let handlers = self.host.close(CLOSED_WITHIN).await;
        assert!(sessions + handlers == 0, "{handlers} handlers and {sessions} sessions do not close");
    }

    fn dedup_id(&self) -> String {
        format!("request-{}-", self.requests.fetch_add(1, Relaxed))
    }
}

mixer_adapter_core::framework::debug_fields!(FakeMixer { host });
