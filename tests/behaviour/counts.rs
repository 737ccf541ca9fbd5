//! Any interleaving of create, close, handle and reconnect leaves the counts exact, and closes every handler once.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use mixer_adapter::{
    Code,
    prost::Message as _,
    proto::{Any, CheckResult},
    template::{ListEntry, Template as _},
};
use mixer_adapter_host::{
    Host, NewSession,
    handler::{Adapters, Caller, Closing, TableLimits},
    session::STEPS_TO_EXPIRE,
};
use proptest::{
    collection::vec,
    prelude::*,
    test_runner::{Config, RngSeed},
};
use test_adapters::{Ledger, Probe, ledger, params::probe::Params};
use tokio::runtime::{Builder, Runtime};

use crate::{
    requests::{ENTRY, entry, inferred, probe, session, session_id},
    support::{Serving, any},
};

const CLIENTS: usize = 3;
const CONFIGS: usize = 4;
const GRACE: std::time::Duration = std::time::Duration::from_secs(10);

/// What a client does next; numbers name a configuration.
#[derive(Clone, Copy, Debug)]
enum Step {
    Create(usize),
    Close(usize),
    CallBySession(usize),
    CallByConfig(usize),
    CallByInstance,
    Reconnect,
    Ticks(u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..CONFIGS).prop_map(Step::Create),
        4 => (0..CONFIGS).prop_map(Step::Close),
        2 => (0..CONFIGS).prop_map(Step::CallBySession),
        1 => (0..CONFIGS).prop_map(Step::CallByConfig),
        2 => Just(Step::CallByInstance),
        1 => Just(Step::Reconnect),
        1 => (1..=STEPS_TO_EXPIRE + 1).prop_map(Step::Ticks),
    ]
}

/// The same cases in every run.
fn cases(cases: u32) -> Config {
    Config { cases, rng_seed: RngSeed::Fixed(2019), failure_persistence: None, ..Config::default() }
}

/// A ledger of its own for each case.
fn fresh_ledger() -> (String, Arc<Ledger>) {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let name = format!("counts {}", NEXT.fetch_add(1, Relaxed));
    (name.clone(), ledger(&name))
}

/// The configuration with this number, which is the use count of its answers.
fn config(ledger: &str, number: usize) -> Option<Any> {
    any(&Params { maybe: Some(uses(number).into()), ..probe(ledger) })
}

fn uses(number: usize) -> i32 {
    number as i32 + 1
}

fn host(runtime: &Runtime) -> Arc<Host> {
    let adapters = Adapters::builder(runtime.handle().clone()).add::<Probe>().build().unwrap();
    Arc::new(Host::new(adapters, TableLimits::default(), Closing::on(runtime.handle().clone())))
}

async fn create(host: &Host, config: Option<Any>, connection: u64) -> String {
    let inferred_types = [inferred(ENTRY, "listentry")].into();
    let new = NewSession { adapter_config: config, inferred_types };
    host.create_session(new, connection).await.unwrap().to_string()
}

/// The use count of the answer.
async fn call(host: &Host, config: Option<Any>, connection: u64) -> Result<i32, Code> {
    let request = entry(config, "allow").encode_to_vec().into();
    let answer =
        host.call(ListEntry::METHOD, request, Caller { connection, ..Caller::default() }).await.unwrap();
    answer.map(|frame| CheckResult::decode(frame.slice(5..)).unwrap().valid_use_count).map_err(|e| e.code())
}

/// The expected state, tracked separately from the actual one.
#[derive(Debug, Default)]
struct Model {
    /// By configuration.
    sessions: BTreeMap<usize, SessionModel>,
    /// The configurations that calls brought.
    kept: BTreeSet<usize>,
    opened: u64,
    claims: u64,
}

#[derive(Debug, Default)]
struct SessionModel {
    claims: u64,
    idle: u32,
    /// When it was last claimed on which connection; the connections of eight claims are remembered.
    claimed_on: Vec<(u64, u64)>,
}

impl Model {
    fn is_open(&self, config: usize) -> bool {
        self.kept.contains(&config) || self.sessions.contains_key(&config)
    }

    fn open(&mut self, config: usize) {
        self.opened += u64::from(!self.is_open(config));
    }

    fn create(&mut self, config: usize, connection: u64) {
        self.open(config);
        self.claims += 1;
        let session = self.sessions.entry(config).or_default();
        session.claims += 1;
        session.idle = 0;
        session.claimed_on.retain(|(known, _)| *known != connection);
        session.claimed_on.push((connection, self.claims));
        if session.claimed_on.len() > 8 {
            session.claimed_on.remove(0);
        }
    }

    /// Whether there was a session to close.
    fn close(&mut self, config: usize) -> bool {
        let Some(session) = self.sessions.get_mut(&config) else { return false };
        session.claims -= 1;
        if session.claims == 0 {
            self.sessions.remove(&config);
        }
        true
    }

    /// The newest session of the connection, else the newest of all.
    fn found(&self, connection: u64) -> Option<usize> {
        let claims = |on: Option<u64>| {
            let all = self.sessions.iter().flat_map(|(config, session)| {
                session.claimed_on.iter().map(move |(connection, order)| (*config, *connection, *order))
            });
            all.filter(move |(_, connection, _)| on.is_none_or(|on| on == *connection))
                .max_by_key(|(_, _, order)| *order)
                .map(|(config, _, _)| config)
        };
        claims(Some(connection)).or_else(|| claims(None))
    }

    fn use_session(&mut self, config: usize) {
        if let Some(session) = self.sessions.get_mut(&config) {
            session.idle = 0;
        }
    }

    fn tick(&mut self) {
        self.sessions.values_mut().for_each(|session| session.idle += 1);
        self.sessions.retain(|_, session| session.idle <= STEPS_TO_EXPIRE);
    }
}

async fn run_steps(host: &Host, name: &str, steps: &[(usize, Step)]) -> Model {
    let mut model = Model::default();
    let mut ids = BTreeMap::new();
    let mut connections: Vec<u64> = (1..=CLIENTS as u64).collect();
    for (at, (client, step)) in steps.iter().enumerate() {
        let connection = connections[*client];
        // Of a configuration that had no session yet: an id that nobody was ever given.
        let id_of = |ids: &BTreeMap<usize, String>, config: &usize| {
            ids.get(config).cloned().unwrap_or_else(|| format!("{config:032x}"))
        };
        match step {
            Step::Create(number) => {
                let id = create(host, config(name, *number), connection).await;
                model.create(*number, connection);
                assert_eq!(*ids.entry(*number).or_insert_with(|| id.clone()), id);
            }
            Step::Close(number) => {
                let closed = host.close_session(&id_of(&ids, number)).is_ok();
                assert_eq!(closed, model.close(*number), "step {at}");
            }
            Step::CallBySession(number) => {
                let expected = model.sessions.contains_key(number).then(|| uses(*number));
                model.use_session(*number);
                let answer = call(host, session_id(&id_of(&ids, number)), connection).await;
                assert_eq!(answer, expected.ok_or(Code::NotFound), "step {at}");
            }
            Step::CallByConfig(number) => {
                model.open(*number);
                model.kept.insert(*number);
                let answer = call(host, config(name, *number), connection).await;
                assert_eq!(answer, Ok(uses(*number)), "step {at}");
            }
            Step::CallByInstance => {
                let expected = model.found(connection);
                expected.into_iter().for_each(|number| model.use_session(number));
                let answer = call(host, None, connection).await;
                assert_eq!(answer, expected.map(uses).ok_or(Code::FailedPrecondition), "step {at}");
            }
            Step::Reconnect => connections[*client] = 100 + at as u64,
            Step::Ticks(ticks) => (0..*ticks).for_each(|_| {
                host.expire_idle();
                model.tick();
            }),
        }
        assert_counts(host, &model, &ids, at);
    }
    model
}

fn assert_counts(host: &Host, model: &Model, ids: &BTreeMap<usize, String>, at: usize) {
    let listed = host.sessions().list(100).into_iter().map(|session| (session.id, session.claims));
    let expected = model.sessions.iter().map(|(config, session)| (ids[config].clone(), session.claims));
    assert_eq!(
        listed.collect::<BTreeMap<_, _>>(),
        expected.collect::<BTreeMap<_, _>>(),
        "claims after step {at}"
    );
    let open = (0..CONFIGS).filter(|config| model.is_open(*config)).count();
    assert_eq!(host.handlers().live_count(), open, "open handlers after step {at}");
}

proptest! {
    #![proptest_config(cases(200))]
    #[test]
    fn one_step_after_the_other(steps in vec((0..CLIENTS, step()), 1..80)) {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (name, ledger) = fresh_ledger();
            let host = host(&runtime);
            let model = run_steps(&host, &name, &steps).await;
            assert_eq!(ledger.opened(), model.opened);
            assert_eq!(host.close(GRACE).await, 0);
            assert_eq!((ledger.closed(), ledger.leaked()), (model.opened, 0));
        });
    }
}

/// What several clients do at the same time leaves nothing but what their claims account for: each closes what it
/// created, so that in the end nothing is left.
async fn run_client(host: Arc<Host>, name: String, client: usize, steps: Vec<Step>) {
    let mut connection = client as u64 + 1;
    let mut claims: Vec<(usize, String)> = Vec::new();
    for (at, step) in steps.into_iter().enumerate() {
        let own = |config: usize| claims.iter().position(|(claimed, _)| *claimed == config);
        match step {
            Step::Create(number) => {
                claims.push((number, create(&host, config(&name, number), connection).await));
            }
            Step::Close(number) => {
                if let Some(own) = own(number) {
                    host.close_session(&claims.swap_remove(own).1).unwrap();
                }
            }
            Step::CallBySession(number) => {
                if let Some(own) = own(number) {
                    let answer = call(&host, session_id(&claims[own].1), connection).await;
                    assert_eq!(answer, Ok(uses(number)));
                }
            }
            Step::CallByConfig(number) => {
                assert_eq!(call(&host, config(&name, number), connection).await, Ok(uses(number)));
            }
            Step::CallByInstance => {
                let answer = call(&host, None, connection).await;
                assert!(answer.is_ok() || claims.is_empty(), "{answer:?}");
            }
            Step::Reconnect => connection = 100 * (client as u64 + 1) + at as u64,
            // Expiry would end sessions that somebody still claims.
            Step::Ticks(_) => host.handlers().sweep(),
        }
        tokio::task::yield_now().await;
    }
    for (_, id) in claims {
        host.close_session(&id).unwrap();
    }
}

proptest! {
    #![proptest_config(cases(100))]
    #[test]
    fn many_clients_at_once(clients in vec(vec(step(), 1..40), 2..6)) {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let (name, ledger) = fresh_ledger();
            let host = host(&runtime);
            let clients = clients.into_iter().enumerate();
            let running: Vec<_> = clients
                .map(|(client, steps)| tokio::spawn(run_client(host.clone(), name.clone(), client, steps)))
                .collect();
            for client in running {
                client.await.unwrap();
            }
            assert_eq!(host.sessions().list(1), []);
            assert_eq!(host.handlers().live_count() as u64, host.handlers().cached_count());
            assert_eq!(host.close(GRACE).await, 0);
            assert_eq!((ledger.closed(), ledger.leaked()), (ledger.opened(), 0));
            assert_eq!(host.handlers().live_count(), 0);
        });
    }
}

/// The same as [`run_client`], over a socket.
async fn run_connected(serving: Arc<Serving>, name: String, steps: Vec<Step>) {
    let mut client = serving.connect().await;
    let mut claims: Vec<(usize, String)> = Vec::new();
    for step in steps {
        let own = |config: usize| claims.iter().position(|(claimed, _)| *claimed == config);
        let check = async |config: Option<Any>| {
            let answer: Result<CheckResult, _> =
                client.call(ListEntry::METHOD, &entry(config, "allow")).await;
            answer.map(|answer| answer.valid_use_count)
        };
        match step {
            Step::Create(number) => {
                let made = client.create_session(session(config(&name, number))).await;
                assert_eq!(made.status.unwrap().code, 0);
                claims.push((number, made.session_id));
            }
            Step::Close(number) => {
                if let Some(own) = own(number) {
                    let closed = client.close_session(&claims.swap_remove(own).1).await;
                    assert_eq!(closed.status.unwrap().code, 0);
                }
            }
            Step::CallBySession(number) => {
                if let Some(own) = own(number) {
                    assert_eq!(check(session_id(&claims[own].1)).await, Ok(uses(number)));
                }
            }
            Step::CallByConfig(number) => assert_eq!(check(config(&name, number)).await, Ok(uses(number))),
            Step::CallByInstance => {
                let answer = check(None).await;
                assert!(answer.is_ok() || claims.is_empty(), "{answer:?}");
            }
            Step::Reconnect => {
                client.break_off();
                client = serving.connect().await;
            }
            Step::Ticks(_) => serving.host.handlers().sweep(),
        }
    }
    for (_, id) in claims {
        assert_eq!(client.close_session(&id).await.status.unwrap().code, 0);
    }
}

proptest! {
    #![proptest_config(cases(8))]
    #[test]
    fn many_clients_at_once_over_sockets(clients in vec(vec(step(), 1..20), 2..5)) {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let (name, ledger) = fresh_ledger();
            let serving = Arc::new(Serving::start(|adapters| adapters.add::<Probe>()).await);
            let creates = clients.iter().flatten().filter(|step| matches!(step, Step::Create(_))).count();
            let running: Vec<_> = clients
                .into_iter()
                .map(|steps| tokio::spawn(run_connected(serving.clone(), name.clone(), steps)))
                .collect();
            for client in running {
                client.await.unwrap();
            }
            assert_eq!(serving.host.sessions().list(1), []);
            assert_eq!(serving.metric("adapter_session_opens_total{result=\"ok\"}").await, creates as f64);
            Arc::into_inner(serving).unwrap().stop().await;
            assert_eq!((ledger.closed(), ledger.leaked()), (ledger.opened(), 0));
        });
    }
}
