//! Cases in this process, and in a process of their own.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    marker::PhantomData,
    path::Path,
    process::{Child, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::BufMut as _;
use mixer_adapter::{
    prost::Message,
    service::mixer::{check, report},
    tonic::{
        Request, Status,
        client::Grpc,
        codec::{Codec, EncodeBuf, Encoder},
        codegen::http::uri::PathAndQuery,
        transport::Channel,
    },
};
use mixer_adapter_config::{ConfigSet, parse};
use mixer_adapter_engine::{
    Mixer,
    build::{BuildOptions, Connector, SnapshotBuilder},
    proto::istio::mixer::v1::{CheckResponse, ReportResponse},
    remote,
};
use mixer_adapter_host::{
    Host,
    handler::{Adapters, Caller, Closing, TableLimits},
};
use mixer_adapters::{
    denier::Denier, list::List, memquota::MemQuota, noop::Noop, stdio::Stdio as StdioAdapter,
};
use tokio::runtime::Handle;
use tonic_prost::ProstDecoder;

use super::{
    answer::{checked, reported},
    case::{Answer, Case, Outcome},
    request::Encoded,
    support::{binary, envoy::get, signal},
};

/// How long a process may take to start and to stop.
const WITHIN: Duration = Duration::from_secs(60);

/// Runs a case in a folder of its own.
pub(crate) async fn run(case: &Case) -> Outcome {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("out")).unwrap();
    let mut outcome = if case.needs_process() {
        run_process(case, folder.path()).await
    } else {
        run_here(case, folder.path()).await
    };
    for entry in fs::read_dir(folder.path().join("out")).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let name = name.replacen("shop-", "@NS@-", 1);
        outcome.files.insert(name, lines(&fs::read_to_string(entry.path()).unwrap()));
    }
    outcome
}

fn lines(text: &str) -> Vec<String> {
    text.lines().map(str::to_owned).collect()
}

/// The engine alone, with the adapters that share nothing with other cases.
async fn run_here(case: &Case, folder: &Path) -> Outcome {
    let runtime = Handle::current();
    let adapters = Adapters::builder(runtime.clone())
        .add::<Denier>()
        .add::<List>()
        .add::<MemQuota>()
        .add::<Noop>()
        .add::<StdioAdapter>();
    let closing = Closing::on(runtime);
    let host = Arc::new(Host::new(adapters.build().unwrap(), TableLimits::default(), closing.clone()));
    let text = case.configuration().replace("\"out/", &format!("\"{}/out/", folder.display()));
    let parsed = parse(&text, "case.yaml", "istio-system");
    let (set, faults) = ConfigSet::of(parsed.resources);
    let faults = parsed.faults.into_iter().chain(faults).collect();
    let connector = Connector { host: host.clone(), remote: remote::Options::default(), closing };
    let mut options = BuildOptions::default();
    options.lenient = true;
    let built = SnapshotBuilder::new(&set, faults, &host).build(None, &connector, &options).await;
    let mixer = Mixer::new();
    mixer.replace(built.unwrap().0);
    let mut answers = Vec::new();
    for request in &case.requests {
        answers.push(match request.encode() {
            Encoded::Check(request) => checked(check(&mixer, *request, Caller::default()).await),
            Encoded::Report(request) => reported(report(&mixer, request, Caller::default()).await),
        });
    }
    mixer.close();
    assert_eq!(host.close(WITHIN).await, 0, "handlers are closed");
    Outcome { answers, ..Outcome::default() }
}

/// The server in a process of its own.
async fn run_process(case: &Case, folder: &Path) -> Outcome {
    let server = Server::start(case, folder).await;
    let channel = Channel::from_shared(format!("http://{}", server.grpc)).unwrap().connect().await.unwrap();
    let mut answers: Vec<Answer> = Vec::new();
    for request in &case.requests {
        let encoded = request.encode();
        answers.push(match &encoded {
            Encoded::Check(_) => checked(call::<CheckResponse>(&channel, "Check", encoded).await),
            Encoded::Report(_) => reported(call::<ReportResponse>(&channel, "Report", encoded).await),
        });
    }
    let (mut prom, mut prom_help) = (BTreeMap::new(), Vec::new());
    if case.adapters().any(|adapter| adapter == "prometheus") {
        for line in server.metrics().lines().filter(|line| !line.contains("mixer_adapter_prometheus_")) {
            match line.rsplit_once(' ') {
                _ if line.starts_with('#') => prom_help.push(line.to_owned()),
                Some((series, value)) => drop(prom.insert(series.to_owned(), value.to_owned())),
                None => panic!("{line:?} is not a sample"),
            }
        }
    }
    let (stdout, stderr) = server.stop().await;
    Outcome { answers, stdout, stderr, prom, prom_help, ..Outcome::default() }
}

async fn call<A: Message + Default + 'static>(
    channel: &Channel,
    method: &str,
    request: Encoded,
) -> Result<A, Status> {
    let mut client = Grpc::new(channel.clone());
    client.ready().await.unwrap();
    let path: PathAndQuery = format!("/istio.mixer.v1.Mixer/{method}").parse().unwrap();
    let request = Request::new(request.into_bytes());
    Ok(client.unary(request, path, BytesCodec::<A>(PhantomData)).await?.into_inner())
}

/// Sends bytes as they are, and decodes the answer.
struct BytesCodec<A>(PhantomData<A>);

impl<A: Message + Default + 'static> Codec for BytesCodec<A> {
    type Encode = Vec<u8>;
    type Decode = A;
    type Encoder = BytesEncoder;
    type Decoder = ProstDecoder<A>;

    fn encoder(&mut self) -> BytesEncoder {
        BytesEncoder
    }

    fn decoder(&mut self) -> ProstDecoder<A> {
        ProstDecoder::default()
    }
}

struct BytesEncoder;

impl Encoder for BytesEncoder {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, bytes: Vec<u8>, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put_slice(&bytes);
        Ok(())
    }
}

/// The binary, in its case's folder.
struct Server<'f> {
    child: Child,
    folder: &'f Path,
    grpc: String,
    admin: String,
}

impl<'f> Server<'f> {
    async fn start(case: &Case, folder: &'f Path) -> Self {
        fs::write(folder.join("case.yaml"), case.configuration()).unwrap();
        let file = |name: &str| File::create(folder.join(name)).unwrap();
        let child = binary()
            .args(["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--config", "case.yaml"])
            .args(["--lenient", "--threads", "1", "--log-json"])
            .env("MIXER_ADAPTER_PROMETHEUS_LISTEN", "127.0.0.1:0")
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(file("stdout"))
            .stderr(file("stderr"))
            .spawn()
            .unwrap();
        let mut server = Self { child, folder, grpc: String::new(), admin: String::new() };
        let greeting = server.until("it prints where it serves", |server| {
            let printed = server.read("stdout");
            printed.contains("\nTry ").then_some(printed)
        });
        let greeting = greeting.await;
        let after = |start: &str| {
            let line = greeting.lines().find_map(|line| line.strip_prefix(start));
            line.unwrap().to_owned()
        };
        (server.grpc, server.admin) = (after("gRPC on "), after("Admin on http://"));
        server.until("it is ready", |server| get(&server.admin, "/readyz")).await;
        server
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.folder.join(name)).unwrap()
    }

    async fn until<T>(&self, what: &str, find: impl Fn(&Self) -> Option<T>) -> T {
        let end = Instant::now() + WITHIN;
        loop {
            if let Some(found) = find(self) {
                return found;
            }
            assert!(Instant::now() < end, "it never came to that: {what}: {}", self.read("stderr"));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// The page of prometheus; empty without a handler.
    fn metrics(&self) -> String {
        // The log says where it is.
        let log = self.read("stderr");
        let urls = log.split("http://").skip(1);
        let mut addresses = urls.filter_map(|rest| Some(rest.split_once("/metrics")?.0));
        let address = addresses.find(|address| !address.contains([' ', '"']));
        address.map(|address| get(address, "/metrics").unwrap()).unwrap_or_default()
    }

    /// Its standard output and error, without its greeting and its log.
    async fn stop(mut self) -> (Vec<String>, Vec<String>) {
        signal(self.child.id(), "TERM");
        let end = Instant::now() + WITHIN;
        while self.child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < end, "the server goes on: {}", self.read("stderr"));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let (stdout, stderr) = (self.read("stdout"), self.read("stderr"));
        let greeted = stdout.lines().position(|line| line.starts_with("Try ")).unwrap();
        let stdout = stdout.lines().skip(greeted + 1).map(str::to_owned).collect();
        let is_log = |line: &&str| line.starts_with("{\"timestamp\":");
        (stdout, stderr.lines().filter(|line| !is_log(line)).map(str::to_owned).collect())
    }
}

impl Drop for Server<'_> {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
