//! Any interleaving of create, close, handle and reconnect leaves the counts exact, and closes every handler once.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
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

use super::{
    requests::{ENTRY, entry, inferred, probe, session, session_id},
    support::{Client, Serving, any},
};

const CLIENTS: usize = 3;
const CONFIGS: usize = 4;
const GRACE: Duration = Duration::from_secs(10);

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
pub fn cases(cases: u32) -> Config {
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
    host.create_session(new, &caller(connection)).await.unwrap().to_string()
}

fn caller(connection: u64) -> Caller {
    Caller { connection, ..Caller::default() }
}

/// The use count of the answer.
async fn call(host: &Host, config: Option<Any>, connection: u64) -> Result<i32, Code> {
    let request = entry(config, "allow").encode_to_vec().into();
    let answer = host.call(ListEntry::METHOD, request, caller(connection)).await.unwrap();
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
    /// By connection: the number of claims, and when the newest was made.
    claims: BTreeMap<u64, (u64, u64)>,
    /// The number of claims whose connection has ended.
    abandoned: u64,
    idle: u32,
}

impl SessionModel {
    fn claims(&self) -> u64 {
        self.claims.values().map(|(count, _)| count).sum::<u64>() + self.abandoned
    }
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
        session.idle = 0;
        let own = session.claims.entry(connection).or_default();
        *own = (own.0 + 1, self.claims);
    }

    /// Closes one of the connection's own claims, or else one whose connection has ended.
    fn close(&mut self, config: usize, connection: u64) -> Result<(), Code> {
        let session = self.sessions.get_mut(&config).ok_or(Code::NotFound)?;
        match session.claims.get_mut(&connection) {
            Some((1, _)) => drop(session.claims.remove(&connection)),
            Some((count, _)) => *count -= 1,
            None if session.abandoned > 0 => session.abandoned -= 1,
            None => return Err(Code::PermissionDenied),
        }
        if session.claims() == 0 {
            self.sessions.remove(&config);
        }
        Ok(())
    }

    fn end_connection(&mut self, connection: u64) {
        for session in self.sessions.values_mut() {
            session.abandoned += session.claims.remove(&connection).map_or(0, |(count, _)| count);
        }
    }

    /// The newest session of the connection.
    fn found(&self, connection: u64) -> Option<usize> {
        let own = |session: &SessionModel| session.claims.get(&connection).map(|(_, order)| *order);
        let sessions = self.sessions.iter().filter_map(|(config, session)| Some((own(session)?, *config)));
        sessions.max().map(|(_, config)| config)
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
        // A configuration without a session so far: an id that was never issued.
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
                let closed = host.close_session(&id_of(&ids, number), &caller(connection)).await;
                assert_eq!(
                    closed.map_err(|error| error.code()),
                    model.close(*number, connection),
                    "step {at}"
                );
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
            Step::Reconnect => {
                host.end_connection(connection);
                model.end_connection(connection);
                connections[*client] = 100 + at as u64;
            }
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
    let listed = host
        .sessions()
        .list(100)
        .into_iter()
        .map(|session| (session.id, (session.claims, session.abandoned)));
    let expected = model
        .sessions
        .iter()
        .map(|(config, session)| (ids[config][..8].to_owned(), (session.claims(), session.abandoned)));
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
                    host.close_session(&claims.swap_remove(own).1, &caller(connection)).await.unwrap();
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
                // The claims made before the last reconnection are found by their ids only.
                let answer = call(&host, None, connection).await;
                assert!(matches!(answer, Ok(_) | Err(Code::FailedPrecondition)), "{answer:?}");
            }
            Step::Reconnect => {
                host.end_connection(connection);
                connection = 100 * (client as u64 + 1) + at as u64;
            }
            // Expiry would end sessions that are still claimed.
            Step::Ticks(_) => host.handlers().sweep(),
        }
        tokio::task::yield_now().await;
    }
    for (_, id) in claims {
        host.close_session(&id, &caller(connection)).await.unwrap();
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
            assert_eq!(host.handlers().live_count(), host.handlers().cached_count());
            assert_eq!(host.close(GRACE).await, 0);
            assert_eq!((ledger.closed(), ledger.leaked()), (ledger.opened(), 0));
            assert_eq!(host.handlers().live_count(), 0);
        });
    }
}

/// Closes one claim; claims of a connection that was broken off can be closed as soon as the server has noticed its end.
async fn close_claim(client: &Client, id: &str) {
    for _ in 0..10_000 {
        match client.close_session(id).await.status.unwrap().code {
            0 => return,
            code => assert_eq!(code, Code::PermissionDenied as i32),
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("the end of a connection was not noticed");
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
                    close_claim(&client, &claims.swap_remove(own).1).await;
                }
            }
            Step::CallBySession(number) => {
                if let Some(own) = own(number) {
                    assert_eq!(check(session_id(&claims[own].1)).await, Ok(uses(number)));
                }
            }
            Step::CallByConfig(number) => assert_eq!(check(config(&name, number)).await, Ok(uses(number))),
            Step::CallByInstance => {
                let answer = check(None).await.map_err(|failure| failure.code);
                assert!(
                    matches!(answer, Ok(_) | Err(mixer_adapter::tonic::Code::FailedPrecondition)),
                    "{answer:?}"
                );
            }
            Step::Reconnect => {
                client.break_off();
                client = serving.connect().await;
            }
            Step::Ticks(_) => serving.host.handlers().sweep(),
        }
    }
    for (_, id) in claims {
        close_claim(&client, &id).await;
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
            assert_eq!(serving.metric("mixer_adapter_session_opens_total{result=\"ok\"}").await, creates as f64);
            Arc::into_inner(serving).unwrap().stop().await;
            assert_eq!((ledger.closed(), ledger.leaked()), (ledger.opened(), 0));
        });
    }
}
