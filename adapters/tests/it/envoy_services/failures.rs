//! Requests that cannot be checked, and servers that are away.

use std::time::{Duration, Instant};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, copy},
    net::{TcpListener, TcpStream},
    runtime::{Builder, Runtime},
    time::sleep,
};
use tokio_util::sync::CancellationToken;

use super::{
    mesh::{Mesh, PATHS, bootstrap, configured, metric, nobody},
    support::{
        Server, binary,
        envoy::{Envoy, is_there},
        eventually,
        http::{HttpResponse, echo, request},
        load::Load,
        run,
    },
};

/// A rule whose condition cannot be evaluated without an API key.
const CONDITION: &str = r#"
kind: rule
metadata: {name: condition, namespace: istio-system}
spec: {match: 'request.api_key == "a"', actions: [{handler: paths, instances: [path]}]}
"#;

#[test]
fn a_request_that_cannot_be_checked_is_treated_by_the_failure_mode_and_never_allowed_by_us() {
    if !is_there() {
        return;
    }
    let config = format!("{PATHS}{CONDITION}");
    let with = ["x-api-key: b"];
    for (serve, envoy, with_header, without_header) in [
        (&[][..], &[][..], 200, 503),
        (&["--envoy-failure", "error-response"], &[], 200, 503),
        (&[], &["--failure-mode-allow"], 200, 200),
        (&["--on-match-error", "open"], &[], 200, 200),
        (&["--on-match-error", "closed"], &[], 200, 503),
    ] {
        let mesh = Mesh::start(&config, serve, envoy);
        assert_eq!(mesh.get("/", &with).status, with_header, "{serve:?} {envoy:?}");
        assert_eq!(mesh.get("/", &[]).status, without_header, "{serve:?} {envoy:?}");
        let outcome = if serve.contains(&"--on-match-error") { "0" } else { "1" };
        assert_eq!(
            mesh.metric(r#"mixer_adapter_checks_total{outcome="failed"}"#),
            outcome,
            "{serve:?} {envoy:?}"
        );
    }
}

#[test]
fn while_the_server_is_away_the_failure_mode_decides() {
    if !is_there() {
        return;
    }
    for (flags, status) in [(&[][..], 503), (&["--failure-mode-allow"], 200)] {
        let envoy = Envoy::start(&bootstrap(&nobody(), &[&["--upstream", &echo()], flags].concat()));
        assert_eq!(request(&envoy.listener("front"), "GET", "/", &[]).status, status, "{flags:?}");
    }
}

/// The paths of the load, which `PATHS` knows.
const LOAD_PATHS: [&str; 2] = ["/shop", "/admin"];

/// Requests are answered as `PATHS` says, whatever happens to the servers.
fn is_decided(path: &str, response: &HttpResponse) -> Result<(), String> {
    match (path, response.status) {
        ("/shop", 200) | ("/admin", 403) => Ok(()),
        _ => Err(format!("{path}: {response:?}")),
    }
}

/// A server on an address, with a configuration.
fn serve(address: &str, directory: &str) -> Server {
    let ports =
        ["serve", "--listen", address, "--admin", "127.0.0.1:0", "--log", "error", "--config", directory];
    Server::spawn(binary().args(ports)).0
}

/// Ends a server, waits until it has ended, and starts it again.
fn restart(server: &mut Server, directory: &str) {
    let address = server.grpc.clone();
    server.signal("TERM");
    eventually("the server has ended", || server.child.try_wait().unwrap());
    *server = serve(&address, directory);
}

#[test]
fn no_request_fails_while_the_only_server_restarts() {
    if !is_there() {
        return;
    }
    let folder = configured(PATHS);
    let directory = folder.path().to_str().unwrap();
    let mut server = serve("127.0.0.1:0", directory);
    server.until("/readyz", "\r\n\r\nready");
    let envoy = Envoy::start(&bootstrap(&server.grpc, &["--config", directory, "--upstream", &echo()]));
    let load = Load::start(&envoy.listener("front"), &LOAD_PATHS, is_decided);
    for _ in 0..2 {
        load.until_sent(100);
        restart(&mut server, directory);
        load.until_sent(100);
    }
    load.finish();
}

#[test]
fn no_request_fails_while_two_servers_restart_in_turn() {
    if !is_there() {
        return;
    }
    let folder = configured(PATHS);
    let directory = folder.path().to_str().unwrap();
    let mut servers = [serve("127.0.0.1:0", directory), serve("127.0.0.1:0", directory)];
    servers.iter().for_each(|server| server.until("/readyz", "\r\n\r\nready"));
    let addresses = format!("{},{}", servers[0].grpc, servers[1].grpc);
    let envoy = Envoy::start(&bootstrap(&addresses, &["--config", directory, "--upstream", &echo()]));
    let load = Load::start(&envoy.listener("front"), &LOAD_PATHS, is_decided);
    for server in &mut servers {
        load.until_sent(100);
        restart(server, directory);
        load.until_sent(100);
    }
    load.finish();
}

/// A port before a server that can be away, independently of how long the server takes to start, and whose answers take a time.
struct Port {
    address: String,
    server: String,
    latency: Duration,
    open: Option<CancellationToken>,
    runtime: Runtime,
}

impl Port {
    fn open(server: &str, latency: Duration) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (address, server) = ("127.0.0.1:0".to_owned(), server.to_owned());
        let mut port = Self { address, server, latency, open: None, runtime };
        port.reopen();
        port
    }

    /// Listens on the address of the first time, and connects what comes to the server.
    fn reopen(&mut self) {
        let listener = self.runtime.block_on(TcpListener::bind(&self.address)).unwrap();
        self.address = listener.local_addr().unwrap().to_string();
        let (open, server, latency) = (CancellationToken::new(), self.server.clone(), self.latency);
        self.open = Some(open.clone());
        self.runtime.spawn(async move {
            while let Some(Ok((mut client, _))) = open.run_until_cancelled(listener.accept()).await {
                let (open, server) = (open.clone(), server.clone());
                tokio::spawn(async move {
                    let mut server = TcpStream::connect(server).await.unwrap();
                    let (mut from_client, mut to_client) = client.split();
                    let (mut from_server, mut to_server) = server.split();
                    tokio::join!(
                        open.run_until_cancelled(copy(&mut from_client, &mut to_server)),
                        whole_answers(&mut from_server, &mut to_client, latency, &open),
                    );
                });
            }
        });
    }

    /// Refuses connections, and ends those that there are once the server has answered what it received: Envoy fails a check without a
    /// retry if the connection ends within its answer.
    fn close(&mut self) {
        self.open.take().unwrap().cancel();
        eventually("the port is closed", || {
            std::net::TcpStream::connect(&self.address).is_err().then_some(())
        });
    }
}

/// Passes answers on until the server ends, or is silent after the port was closed.
async fn whole_answers(
    server: &mut (impl AsyncRead + Unpin),
    client: &mut (impl AsyncWrite + Unpin),
    latency: Duration,
    open: &CancellationToken,
) {
    let mut part = vec![0; 65_536];
    loop {
        let silence = async {
            open.cancelled().await;
            sleep(Duration::from_millis(100)).await;
        };
        let read = tokio::select! {
            read = server.read(&mut part) => read.unwrap_or_default(),
            () = silence => return,
        };
        sleep(latency).await;
        if read == 0 || client.write_all(&part[..read]).await.is_err() {
            return;
        }
    }
}

/// How long the server is away: long enough that requests fail without retries, and 2 s less than they wait by what `envoy-config` prints,
/// for machines that are busy.
const GAP: Duration = Duration::from_millis(500);

#[test]
fn no_request_fails_while_the_only_server_is_away_and_the_retries_wait_for_it() {
    if !is_there() {
        return;
    }
    let folder = configured(PATHS);
    let directory = folder.path().to_str().unwrap();
    let server = serve("127.0.0.1:0", directory);
    server.until("/readyz", "\r\n\r\nready");
    let mut port = Port::open(&server.grpc, Duration::ZERO);
    let bootstrap = bootstrap(&port.address, &["--config", directory, "--upstream", &echo()]);
    let envoy = Envoy::start(&patient(&bootstrap));
    let load = Load::start(&envoy.listener("front"), &LOAD_PATHS, is_decided);
    load.until_sent(100);
    let gone = Instant::now();
    port.close();
    eventually("the server was away for a while", || (gone.elapsed() >= GAP).then_some(()));
    port.reopen();
    load.until_sent(100);
    load.finish();
}

/// Times and retries as printed, but for longer: a busy machine may stop for seconds.
fn patient(bootstrap: &str) -> String {
    let changes = [
        ("timeout: 2.5s", "timeout: 30s"),
        ("\"2500\"", "\"30000\""),
        ("num_retries: 40", "num_retries: 1200"),
    ];
    changes.iter().fold(bootstrap.to_owned(), |text, (printed, patient)| {
        assert!(text.contains(printed), "{printed} is not in {text}");
        text.replace(printed, patient)
    })
}

/// Longer than Envoy waits between tries, which is also its default for one try.
const LATENCY: Duration = Duration::from_millis(500);

#[test]
fn a_check_that_takes_longer_than_the_wait_between_tries_is_asked_once_and_answered() {
    if !is_there() {
        return;
    }
    let folder = configured(PATHS);
    let directory = folder.path().to_str().unwrap();
    let server = serve("127.0.0.1:0", directory);
    server.until("/readyz", "\r\n\r\nready");
    let port = Port::open(&server.grpc, LATENCY);
    let bootstrap = bootstrap(&port.address, &["--config", directory, "--upstream", &echo()]);
    let envoy = Envoy::start(&patient(&bootstrap));
    let front = envoy.listener("front");
    for (path, status) in [("/shop", 200), ("/admin", 403)] {
        assert_eq!(request(&front, "GET", path, &[]).status, status, "{path}");
    }
    assert_eq!(envoy.counter("cluster.mixer_adapter.upstream_rq_per_try_timeout"), 0);
    for outcome in ["allowed", "denied"] {
        let series = format!("mixer_adapter_checks_total{{outcome=\"{outcome}\"}}");
        assert_eq!(metric(&server, &series), "1", "{outcome}");
    }
}

/// Asks an adapter elsewhere about each request; `$ADDRESS` is that of the adapter.
const REMOTE: &str = r#"
---
kind: handler
metadata: {name: remote, namespace: istio-system}
spec: {adapter: denier, connection: {address: "$ADDRESS"}}
---
kind: instance
metadata: {name: path, namespace: istio-system}
spec: {template: listentry, params: {value: request.url_path}}
---
kind: rule
metadata: {name: paths, namespace: istio-system}
spec: {actions: [{handler: remote, instances: [path]}]}
"#;

#[test]
fn while_an_adapter_is_away_the_failure_mode_or_the_policy_of_the_server_decides() {
    if !is_there() {
        return;
    }
    let config = run(&["manifest", "denier"]).stdout + &REMOTE.replace("$ADDRESS", &nobody());
    for (serve, envoy, status) in [
        (&[][..], &[][..], 503),
        (&[], &["--failure-mode-allow"], 200),
        (&["--on-adapter-error", "open"], &[], 200),
        (&["--on-adapter-error", "closed"], &["--failure-mode-allow"], 503),
    ] {
        let mesh = Mesh::start(&config, serve, envoy);
        assert_eq!(mesh.get("/", &[]).status, status, "{serve:?} {envoy:?}");
    }
}

#[test]
fn entries_that_envoy_lost_are_those_that_it_wrote_and_no_server_received() {
    if !is_there() {
        return;
    }
    let folder = configured(PATHS);
    let directory = folder.path().to_str().unwrap();
    let mut server = serve("127.0.0.1:0", directory);
    server.until("/readyz", "\r\n\r\nready");
    let envoy = Envoy::start(&bootstrap(&server.grpc, &["--config", directory, "--upstream", &echo()]));
    let front = envoy.listener("front");
    let requests = |count: u64| (0..count).for_each(|_| drop(request(&front, "GET", "/shop", &[])));
    let received = |server: &Server, count: u64| {
        let entries = || metric(server, "mixer_adapter_envoy_log_entries_total") == count.to_string();
        eventually("the entries are received", || entries().then_some(()));
    };
    requests(10);
    received(&server, 10);
    let address = server.grpc.clone();
    server.signal("TERM");
    eventually("the server has ended", || server.child.try_wait().unwrap());
    requests(1);
    let flushed = || envoy.counter("access_logs.grpc_access_log.grpc_entries_flushed") == 11;
    eventually("the entry is lost", || flushed().then_some(()));
    let server = serve(&address, directory);
    server.until("/readyz", "\r\n\r\nready");
    requests(5);
    received(&server, 5);
    assert_eq!(envoy.counter("access_logs.grpc_access_log.logs_written") - (10 + 5), 1);
    // The name by which the recording rule in deploy/prometheus reads it.
    let page = envoy.admin("/stats/prometheus");
    let written =
        page.lines().find(|line| line.starts_with("envoy_access_logs_grpc_access_log_logs_written{"));
    assert!(written.is_some_and(|line| line.ends_with(" 16")), "{written:?}");
}

/// The number of requests through reloads of the configuration; all of them with `ENVOY_REQUESTS=100000` (docs/testing.md).
fn requests() -> u64 {
    std::env::var("ENVOY_REQUESTS").map_or(4_000, |count| count.parse().unwrap())
}

/// Requests are answered as by one of two configurations.
fn is_decided_by_either(path: &str, response: &HttpResponse) -> Result<(), String> {
    match (path, response.status) {
        ("/shop", 200 | 403) | ("/admin", 403) => Ok(()),
        _ => Err(format!("{path}: {response:?}")),
    }
}

#[test]
fn no_request_fails_or_is_allowed_by_mistake_while_the_configuration_changes() {
    if !is_there() {
        return;
    }
    let mesh = Mesh::start(PATHS, &[], &[]);
    let front = mesh.front();
    let load = Load::start(&front, &LOAD_PATHS, is_decided_by_either);
    let closed = PATHS.replace("[/admin]", "[/admin, /shop]");
    let changes = 8;
    for number in 0..changes {
        let (config, shop) = if number % 2 == 0 { (closed.as_str(), 403) } else { (PATHS, 200) };
        mesh.configure(config);
        load.until_sent(requests() / changes);
        // From some request on, it is the new one for good.
        eventually("the configuration is used", || {
            (request(&front, "GET", "/shop", &[]).status == shop).then_some(())
        });
    }
    assert!(load.finish() >= requests());
    assert_eq!(mesh.metric(r#"mixer_adapter_checks_total{outcome="failed"}"#), "0");
}
