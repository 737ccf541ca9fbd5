//! Configuration changes while requests are served: no request fails, each sees one snapshot, what did not change stays
//! open, and nothing leaks.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use mixer_adapter::{
    Code,
    service::{Server, ServerOptions, Workers},
    testing::{FakeMixer, Setup, attributes},
};
use mixer_adapter_host::{
    Host,
    handler::{Adapters, Closing, TableLimits},
};
use test_adapters::{Ledger, Probe, Recorded, ledger};
use tokio::{runtime::Handle, task::JoinSet};
use tokio_util::sync::CancellationToken;

const RELOADS: u64 = 50;
const TASKS: u64 = 8;

/// The configuration of a generation: `steady` stays as it is, the others change. Two handlers deny their own generation's
/// name, which is the value of the instance, and write it into their denials.
fn config(generation: u64, adapter: impl Fn(&str) -> String, ledger: &str) -> String {
    let handler = |name: &str, of: &str, params: String| {
        let adapter = adapter(of);
        format!("---\nkind: handler\nmetadata: {{name: {name}}}\nspec: {{{adapter}, params: {{{params}}}}}\n")
    };
    let instance = |name: &str, value: &str| {
        let params = format!("{{value: '\"{value}\"'}}");
        format!(
            "---\nkind: instance\nmetadata: {{name: {name}}}\nspec: {{compiledTemplate: listentry, params: {params}}}\n"
        )
    };
    let name = format!("generation-{generation}");
    let denies = format!("deny: [{name}], greeting: {name}, limit: 1");
    [
        handler("steady", "probe", format!("ledger: {ledger}-steady")),
        handler("moving", "probe", format!("ledger: {ledger}-moving, seq: {generation}")),
        handler("first", "recorded", denies.clone()),
        handler("second", "recorded", denies),
        instance("always", "allow"),
        instance("now", &name),
        "---\nkind: rule\nmetadata: {name: all}\nspec:\n  actions:\n  - {handler: steady, instances: [always]}\n  \
         - {handler: moving, instances: [always]}\n  - {handler: first, instances: [now]}\n  - {handler: second, instances: [now]}\n"
            .to_owned(),
    ]
    .concat()
}

/// The generation that both handlers which deny are of.
fn generation(message: &str) -> u64 {
    let told: BTreeSet<&str> =
        message.split(", ").map(|denial| denial.rsplit_once(":generation-").unwrap().1).collect();
    assert_eq!(
        (told.len(), message.split(", ").count()),
        (1, 2),
        "more than one snapshot answered: {message}"
    );
    told.first().unwrap().parse().unwrap()
}

/// Spreads reloads evenly over at least that number of checks. All must be answered, some by the last generation. Returns the
/// generations that were seen.
async fn reload_under_load(
    mixer: FakeMixer,
    checks: u64,
    config: impl Fn(u64) -> String,
) -> (FakeMixer, BTreeSet<u64>) {
    let mixer = Arc::new(mixer);
    let (done, begun, applied) =
        (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let (mixer, done, begun, applied) = (mixer.clone(), done.clone(), begun.clone(), applied.clone());
        tasks.spawn(async move {
            let mut seen = BTreeSet::new();
            while !(seen.contains(&RELOADS) && done.load(SeqCst) >= checks) {
                let before = applied.load(SeqCst);
                let check = mixer.check(attributes! {}).await;
                check.expect_denied(Code::PermissionDenied, "").expect_calls(4);
                let generation = generation(&check.expect_ok().status().message);
                assert!((before..=begun.load(SeqCst)).contains(&generation), "{generation} after {before}");
                seen.insert(generation);
                done.fetch_add(1, SeqCst);
                // As where requests come from a network: there, each is waited for.
                tokio::task::yield_now().await;
            }
            seen
        });
    }
    for generation in 1..=RELOADS {
        while done.load(SeqCst) < generation * checks / (RELOADS + 1) {
            tokio::time::sleep(Duration::from_millis(1)).await;
            if let Some(failed) = tasks.try_join_next() {
                failed.unwrap();
            }
        }
        begun.store(generation, SeqCst);
        mixer.reload(&config(generation)).await.unwrap();
        applied.store(generation, SeqCst);
    }
    let seen = tasks.join_all().await.into_iter().flatten().collect();
    assert!(done.load(SeqCst) >= checks);
    (Arc::into_inner(mixer).unwrap(), seen)
}

async fn until_closed(ledger: &Ledger, count: u64) {
    let closed = async {
        while ledger.closed() < count {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), closed).await.unwrap();
}

fn adapters() -> Setup<Recorded> {
    FakeMixer::with::<Probe>().and::<Recorded>()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_checks_go_on_while_handlers_in_the_process_come_and_go() {
    let text = |generation| config(generation, |adapter| format!("compiledAdapter: {adapter}"), "process");
    let mixer = adapters().config(&text(0)).start().await.unwrap();
    let (mixer, seen) = reload_under_load(mixer, 10_000, text).await;
    assert_eq!(seen, (0..=RELOADS).collect());
    let (steady, moving) = (ledger("process-steady"), ledger("process-moving"));
    // Those of former generations are closed already.
    until_closed(&moving, RELOADS).await;
    assert_eq!(mixer.host().handlers().live_count(), 3, "first and second are one handler");
    assert_eq!((steady.opened(), steady.closed()), (1, 0));
    mixer.close().await;
    assert_eq!((steady.opened(), steady.closed(), steady.leaked()), (1, 1, 0));
    assert_eq!((moving.opened(), moving.closed(), moving.leaked()), (RELOADS + 1, RELOADS + 1, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checks_go_on_while_sessions_with_a_server_come_and_go() {
    let adapters_there =
        Adapters::builder(Handle::current()).add::<Probe>().add::<Recorded>().build().unwrap();
    let host = Arc::new(Host::new(adapters_there, TableLimits::default(), Closing::on(Handle::current())));
    let server = Server::new(host.clone(), ServerOptions::default());
    let bound = server.bind(std::net::SocketAddr::from(([127, 0, 0, 1], 0)), None).await.unwrap();
    let address = bound.grpc_address().unwrap().tcp().unwrap();
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    let served = tokio::spawn(async move { bound.run(&Workers::here(), stopped).await });

    let adapter = |adapter: &str| format!("adapter: {adapter}, connection: {{address: \"{address}\"}}");
    let text = |generation| config(generation, adapter, "session");
    let mixer = adapters().sessions().at(address).config(&text(0)).start().await.unwrap();
    let (mixer, seen) = reload_under_load(mixer, 500, text).await;
    assert_eq!(seen, (0..=RELOADS).collect());
    let (steady, moving) = (ledger("session-steady"), ledger("session-moving"));
    until_closed(&moving, RELOADS).await;
    assert_eq!((steady.opened(), steady.closed()), (1, 0));
    // One session of `steady`; each generation one of `moving`, and one that `first` and `second` share.
    assert_eq!(host.counts().opened.load(SeqCst), 1 + 3 * (RELOADS + 1));
    let claims: Vec<u64> = host.sessions().list(10).iter().map(|session| session.claims).collect();
    assert_eq!((claims.len(), claims.iter().sum()), (3, 4));
    mixer.close().await;
    assert_eq!(host.sessions().list(10), []);
    assert_eq!(host.counts().closed.load(SeqCst), 1 + 2 * (RELOADS + 1));
    stop.cancel();
    served.await.unwrap().unwrap();
    assert_eq!((steady.opened(), steady.closed(), steady.leaked()), (1, 1, 0));
    assert_eq!((moving.opened(), moving.closed(), moving.leaked()), (RELOADS + 1, RELOADS + 1, 0));
}
