//! Pushes become live while requests are served, over real sockets on both sides: no request fails, and a refused push changes
//! nothing.

use std::{
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
};

use crate::support::{Client, until};
use mixer_adapter::{
    Code,
    service::{Server, ServerOptions, Workers},
    tonic::service::Routes,
};
use mixer_adapter_config::{Change, CollectionFilter, MergedSource, Offers, Update, parse, source};
use mixer_adapter_engine::{
    ConfigStatus, Controller, Mixer,
    build::{BuildOptions, Connector},
    proto::istio::mixer::v1::{CheckRequest, CheckResponse},
    remote,
};
use mixer_adapter_host::{
    Host,
    handler::{Adapters, Closing, TableLimits},
};
use mixer_adapter_streams::{
    ConfigUrl, SourceSettings, Types,
    mcp::source as mcp,
    stream::{
        listen,
        source::{Catalogue, ConfigServer, ConfigServerOptions, feed},
    },
    xds,
};
use parking_lot::Mutex;
use test_adapters::Recorded;
use tokio::{net::TcpListener, runtime::Handle, sync::mpsc, task::JoinSet};
use tokio_util::sync::{CancellationToken, DropGuard};

const TASKS: usize = 4;
const PUSHES: u64 = 6;

/// Denies every check with the name of the generation, by a new rule each time.
fn config(generation: u64) -> String {
    format!(
        "---\nkind: handler\nmetadata: {{name: h}}\nspec: {{compiledAdapter: recorded, params: {{deny: [always], greeting: generation-{generation}, limit: 1}}}}\n\
         ---\nkind: instance\nmetadata: {{name: i}}\nspec: {{compiledTemplate: listentry, params: {{value: '\"always\"'}}}}\n\
         ---\nkind: rule\nmetadata: {{name: rule-{generation}}}\nspec: {{actions: [{{handler: h, instances: [i]}}]}}\n"
    )
}

/// The same with a handler that cannot be built.
fn broken(generation: u64) -> String {
    config(generation).replace("deny:", "no-such-field:")
}

/// A source of the configurations that a test sends.
struct TestSource(mpsc::Receiver<String>);

impl source::Source for TestSource {
    fn name(&self) -> String {
        "a test".to_owned()
    }

    fn run(mut self: Box<Self>, mut offers: Offers) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move {
            while let Some(text) = self.0.recv().await {
                let resources = parse(&text, "pushed", "istio-system").resources;
                let changes = Change::full_sets(resources);
                let update = Update { source: "a test".into(), changes, faults: Vec::new() };
                offers.offer(update).await.unwrap().verdict().await.unwrap();
            }
        })
    }
}

/// A control plane that serves every protocol variant.
struct ControlPlane {
    address: SocketAddr,
    source: ConfigServer,
    push: mpsc::Sender<String>,
    _stop: DropGuard,
}

impl ControlPlane {
    async fn start() -> Self {
        let source = ConfigServer::new(Catalogue::default().open(), ConfigServerOptions::default());
        let services = mcp::mount(Routes::default(), &source, &mcp::default_options());
        let services = xds::source::mount(services, &source, &xds::source::default_options());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        tokio::spawn(listen(listener, services, stop.clone()));
        let (push, texts) = mpsc::channel(1);
        tokio::spawn(feed(source.clone(), TestSource(texts), Types::default()));
        push.send(config(0)).await.unwrap();
        source.filled().await;
        Self { address, source, push, _stop: stop.drop_guard() }
    }

    /// Whether the sink refused its last push.
    fn is_refused(&self) -> bool {
        self.source.sinks().iter().any(|sink| sink.collections.values().any(|watch| watch.refused.is_some()))
    }
}

/// A server that follows a control plane.
struct Mixing {
    grpc: SocketAddr,
    status: Arc<Mutex<ConfigStatus>>,
    _stop: DropGuard,
}

impl Mixing {
    async fn start(config: &str) -> Self {
        let adapters = Adapters::builder(Handle::current()).add::<Recorded>().build().unwrap();
        let host = Arc::new(Host::new(adapters, TableLimits::default(), Closing::on(Handle::current())));
        let mixer = Arc::new(Mixer::new());
        let connector = Connector {
            host: host.clone(),
            remote: remote::Options::default(),
            closing: host.closing().clone(),
        };
        let controller =
            Controller::new(mixer.clone(), host.clone(), Arc::new(connector), BuildOptions::default());
        let status = controller.status();
        let server = Server::new(host, ServerOptions::default()).mixer(mixer);
        let bound = server.bind(SocketAddr::from(([127, 0, 0, 1], 0)), None).await.unwrap();
        let grpc = bound.grpc_address().unwrap().tcp().unwrap();
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        tokio::spawn(async move { bound.run(&Workers::here(), stopped).await });
        let url: ConfigUrl = config.parse().unwrap();
        let settings = SourceSettings::new("istio-system");
        let source = url.source(&settings).unwrap();
        let (filter, required) = (CollectionFilter::default(), settings.required());
        let source = MergedSource { source, filter, required, skip_bad_resources: false };
        tokio::spawn(controller.follow(vec![source]));
        let followed = status.clone();
        until("configuration is applied", || followed.lock().applied > 0).await;
        Self { grpc, status, _stop: stop.drop_guard() }
    }
}

/// Sends checks until `enough`, each of which must be answered by a generation in use meanwhile. Returns their number.
async fn check(client: Client, seen: Arc<AtomicU64>, begun: Arc<AtomicU64>, enough: Arc<AtomicBool>) -> u64 {
    let mut checks = 0;
    while !enough.load(SeqCst) {
        let before = seen.load(SeqCst);
        let answer: CheckResponse =
            client.call("/istio.mixer.v1.Mixer/Check", &CheckRequest::default()).await.unwrap();
        let status = answer.precondition.unwrap().status.unwrap();
        assert_eq!(status.code, Code::PermissionDenied as i32, "{}", status.message);
        let generation: u64 = status.message.rsplit_once("generation-").unwrap().1.parse().unwrap();
        assert!((before..=begun.load(SeqCst)).contains(&generation), "{generation} after {before}");
        seen.fetch_max(generation, SeqCst);
        checks += 1;
    }
    checks
}

async fn pushes_become_live(scheme: &str, settings: &str) {
    let plane = ControlPlane::start().await;
    let mixing = Mixing::start(&format!("{scheme}://{}{settings}", plane.address)).await;
    let (seen, begun) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let enough = Arc::new(AtomicBool::new(false));
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let client = Client::connect(mixing.grpc).await;
        tasks.spawn(check(client, seen.clone(), begun.clone(), enough.clone()));
    }
    for generation in 1..=PUSHES {
        if generation == PUSHES / 2 {
            let rejected = || mixing.status.lock().rejected;
            let before = rejected();
            plane.push.send(broken(generation)).await.unwrap();
            until("the broken push is refused", || rejected() > before && plane.is_refused()).await;
        }
        begun.store(generation, SeqCst);
        plane.push.send(config(generation)).await.unwrap();
        until("the push is live", || seen.load(SeqCst) == generation).await;
    }
    enough.store(true, SeqCst);
    let checks = tasks.join_all().await;
    assert!(checks.iter().all(|checks| *checks > PUSHES), "{checks:?}");
    until("no push is refused", || !plane.is_refused()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_fails_while_pushes_of_mcp_become_live() {
    pushes_become_live("mcp", "").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_fails_while_whole_sets_of_xds_become_live() {
    pushes_become_live("xds", "").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_fails_while_changes_of_xds_become_live() {
    pushes_become_live("xds+delta", "").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_fails_while_pushes_of_the_protocol_before_mcp_become_live() {
    pushes_become_live("mcp+aggregated", "").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_fails_while_changes_of_the_protocol_before_mcp_become_live() {
    pushes_become_live("mcp+aggregated-delta", "").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_fails_while_answers_of_rest_become_live() {
    pushes_become_live("xds+http", "?refresh_delay=20ms").await;
}
