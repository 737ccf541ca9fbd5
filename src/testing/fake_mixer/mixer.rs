use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::{runtime::Handle as Runtime, sync::Mutex};

use super::{
    Answer, Ask, Attributes, Fault, NoAdapter, Refused, Setup, backend::Backend, call::recorded,
    connect::Places, resources::NAMESPACE,
};
use crate::{
    answer::Verdict,
    service::mixer::{explain_report, report_request},
};
use mixer_adapter_config::{self as config, Apply as _, Change, Resource, Update};
use mixer_adapter_core::adapter::{Adapter, Grant};
use mixer_adapter_engine::{
    Controller, Mixer,
    build::{BuildOptions, Connector},
    dictionary::WORDS,
    remote::{self, Backoff},
};
use mixer_adapter_host::{
    Host,
    handler::{Caller, Closing},
};

/// The engine with a test's configuration: takes Check, Report and quota as a Mixer, calls adapters as one, and says why.
///
/// Everything is real but the network: requests are encoded as a proxy encodes them, rules and expressions are evaluated,
/// and adapters in the process are called by gRPC over pipes, by the client and the server that are used over TCP. So the
/// clock of tokio can be paused (`#[tokio::test(start_paused = true)]`), and a test that waits for a minute takes none.
pub struct FakeMixer {
    pub(super) mixer: Arc<Mixer>,
    host: Arc<Host>,
    backend: Arc<Backend>,
    controller: Mutex<Controller>,
    /// Where connections are kept, and sessions ended.
    closing: Closing,
    /// Resources that a new configuration has, too, unless it has others of the same names.
    standing: Vec<Resource>,
    requests: AtomicU64,
}

/// How long handlers may take to close.
const CLOSED_WITHIN: Duration = Duration::from_secs(10);

impl FakeMixer {
    /// A Mixer with that adapter in the process; [`Setup::and`] adds others.
    pub fn with<A: Adapter>() -> Setup<A> {
        Setup::new().and::<A>()
    }

    /// A Mixer with that configuration, in YAML or JSON, and without adapters in the process: handlers call the addresses
    /// that they name.
    pub fn configured(text: &str) -> Setup<NoAdapter> {
        Setup::new().config(text)
    }

    pub(super) fn new(
        host: Arc<Host>,
        standing: Vec<Resource>,
        address: Option<String>,
        options: BuildOptions,
    ) -> Self {
        let closing = Closing::on(Runtime::current());
        let backend = Backend::new(host.clone());
        let here = remote::Options {
            wire: Some(backend.wire(closing.runtime().clone())),
            resolver: remote::Resolver::new(|_, _| async { Ok(vec![([127, 0, 0, 1], 1).into()]) }),
            reconnect: Backoff { first: Duration::from_millis(1), longest: Duration::from_millis(10) },
            setup_backoff: Backoff { first: Duration::from_millis(1), longest: Duration::from_millis(10) },
            ..remote::Options::default()
        };
        let connector = |remote| Connector { host: host.clone(), remote, closing: closing.clone() };
        let places = Places {
            host: host.clone(),
            here: connector(here),
            elsewhere: connector(remote::Options::default()),
            address,
        };
        let mixer = Arc::new(Mixer::new());
        let controller = Controller::new(mixer.clone(), host.clone(), Arc::new(places), options);
        let (controller, requests) = (Mutex::new(controller), AtomicU64::new(0));
        Self { mixer, host, backend, controller, closing, standing, requests }
    }

    /// Sends a Check.
    pub fn check(&self, attributes: impl Into<Attributes>) -> Ask<'_, Verdict> {
        Ask::new(self, attributes.into(), self.dedup_id())
    }

    /// Sends a Check that asks for a quota: an instance's short name and an amount. A request that is denied before that is
    /// an error, with the denial's code.
    pub fn quota(&self, name: &str, amount: i64, attributes: impl Into<Attributes>) -> Ask<'_, Grant> {
        Ask::new(self, attributes.into(), self.dedup_id()).quota(name, amount)
    }

    /// Sends a Report of one request or, given several, of a batch.
    pub async fn report(&self, batch: impl IntoIterator<Item = Attributes>) -> Answer<()> {
        let requests: Vec<_> = batch.into_iter().map(Attributes::into_written).collect();
        let request = report_request(&requests, WORDS.len());
        let report = explain_report(&self.mixer, request, Caller::default());
        let ((result, trace), calls) = recorded(report).await;
        Answer { result: result.map(drop), calls, trace }
    }

    /// Has the next call of an adapter meet a fault, on its way by gRPC; of several, each call meets one. Handlers that name
    /// their adapter by `compiledAdapter` are called without gRPC and meet none.
    pub fn inject(&self, fault: Fault) {
        self.backend.inject(fault);
    }

    /// Puts another configuration in the place of the test's own, in YAML or JSON. A refused one changes nothing.
    pub async fn reload(&self, text: &str) -> Result<(), Refused> {
        let parsed = config::parse(text, "the test", NAMESPACE);
        self.configure(parsed.resources, parsed.faults).await
    }

    pub(super) async fn configure(
        &self,
        mut resources: Vec<Resource>,
        faults: Vec<config::Fault>,
    ) -> Result<(), Refused> {
        for standing in &self.standing {
            if !resources.iter().any(|resource| resource.name == standing.name) {
                resources.push(standing.clone());
            }
        }
        let update = Update { source: "the test".into(), changes: Change::full_sets(resources), faults };
        self.controller.lock().await.apply(update).await.map_err(|faults| Refused { faults })
    }

    /// The adapters in the process, with their handlers and sessions.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// Lets go of all handlers and waits until they are closed, so that what they do last can be looked at.
    ///
    /// # Panics
    /// If they are not closed within ten seconds.
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

impl fmt::Debug for FakeMixer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let adapters: Vec<&str> = self.host.adapters().iter().map(|adapter| adapter.name).collect();
        write!(f, "FakeMixer({})", adapters.join(", "))
    }
}
