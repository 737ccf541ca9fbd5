//! Servers that share sessions: their exchanges with the store run, and are answered, in any order.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use mixer_adapter::{
    Code,
    prost::Message as _,
    template::{ListEntry, Metric, Template as _},
};
use mixer_adapter_host::{
    Host, NewSession,
    handler::{Adapters, BoxFuture, CallError, Caller, Closing, TableLimits},
    session::{
        ClaimOwner, Release, SessionId, SessionKey, SessionLimits, SessionLookup, SessionOptions,
        SessionStore, SessionStoreError, SharedClaim, SharedState,
    },
};
use proptest::{collection::vec, prelude::*};
use test_adapters::Probe;
use tokio::{
    runtime::{Builder, Handle},
    sync::oneshot,
    time::sleep,
};

use super::{
    counts::cases,
    requests::{ENTRY, entry, inferred, metrics, probe, session_id},
    support::any,
};

/// The store as the scripts of Redis have it. Its exchanges can wait before they run, and again before they are answered.
#[derive(Default)]
struct Store {
    data: Mutex<Data>,
    waits: AtomicBool,
    waiting: Mutex<Vec<oneshot::Sender<()>>>,
}

#[derive(Default)]
struct Data {
    sessions: HashMap<SessionId, Stored>,
    /// The sessions that were claimed last, by their instances.
    instances: HashMap<SessionId, SessionId>,
    last_epoch: u64,
}

#[derive(Default)]
struct Stored {
    epoch: u64,
    is_open: bool,
    request: NewSession,
    claims: BTreeMap<ClaimOwner, u32>,
}

impl Stored {
    /// Takes claims of an owner, and returns how many it had.
    fn take(&mut self, owner: ClaimOwner, count: u32) -> u32 {
        let held = self.claims.entry(owner).or_default();
        let taken = count.min(*held);
        *held -= taken;
        taken
    }
}

impl Data {
    fn open(&mut self, id: &SessionId, epoch: Option<u64>) -> Option<&mut Stored> {
        let stored = self.sessions.get_mut(id)?;
        (stored.is_open && epoch.is_none_or(|epoch| epoch == stored.epoch)).then_some(stored)
    }
}

impl Store {
    fn exchange<'a, T: Send + 'a>(
        &'a self,
        run: impl FnOnce(&mut Data) -> T + Send + 'a,
    ) -> BoxFuture<'a, Result<T, SessionStoreError>> {
        Box::pin(async move {
            self.wait().await;
            let answer = run(&mut self.data.lock().unwrap());
            self.wait().await;
            Ok(answer)
        })
    }

    async fn wait(&self) {
        if self.waits.load(Relaxed) {
            let (go_on, waiting) = oneshot::channel();
            self.waiting.lock().unwrap().push(go_on);
            // Without its sender it goes on, too.
            let _ = waiting.await;
        }
    }

    /// Lets an exchange go on that waits.
    fn go_on(&self, at: usize) {
        let mut waiting = self.waiting.lock().unwrap();
        if !waiting.is_empty() {
            let at = at % waiting.len();
            let _ = waiting.remove(at).send(());
        }
    }

    /// Sets whether exchanges wait.
    fn set_waits(&self, waits: bool) {
        self.waits.store(waits, Relaxed);
        self.waiting.lock().unwrap().clear();
    }

    fn change(&self, id: &SessionId, change: impl FnOnce(&mut Stored)) {
        change(self.data.lock().unwrap().sessions.get_mut(id).unwrap());
    }
}

impl SessionStore for Store {
    fn claim<'a>(&'a self, claim: SharedClaim<'a>) -> BoxFuture<'a, Result<u64, SessionStoreError>> {
        self.exchange(move |data| {
            let known = data.sessions.get(claim.id).map(|stored| (stored.epoch, stored.is_open));
            let is_current = known.is_some_and(|(epoch, _)| epoch == claim.epoch);
            let added = if is_current { claim.new } else { claim.all };
            if let Some((epoch, false)) = known
                && added.is_empty()
            {
                return epoch;
            }
            data.last_epoch += 1;
            let epoch = known.map_or(data.last_epoch, |(epoch, _)| epoch);
            let stored = data.sessions.entry(*claim.id).or_default();
            if !stored.is_open {
                let request = claim.request.clone();
                *stored = Stored { epoch, is_open: true, request, claims: BTreeMap::new() };
            }
            for (owner, count) in added {
                *stored.claims.entry(*owner).or_default() += count;
            }
            data.instances.extend(claim.instances.iter().map(|instance| (*instance, *claim.id)));
            epoch
        })
    }

    fn release<'a>(
        &'a self,
        id: &'a SessionId,
        owner: ClaimOwner,
        count: u32,
        epoch: Option<u64>,
    ) -> BoxFuture<'a, Result<Release, SessionStoreError>> {
        self.exchange(move |data| {
            let Some(stored) = data.open(id, epoch) else { return Release::Unknown };
            let taken = stored.take(owner, count);
            if taken + stored.take(ClaimOwner::Nobody, count - taken) == 0 {
                return Release::NotClaimed;
            }
            let left: u64 = stored.claims.values().map(|count| u64::from(*count)).sum();
            stored.is_open = left > 0;
            Release::Released(left)
        })
    }

    fn abandon<'a>(
        &'a self,
        id: &'a SessionId,
        owner: ClaimOwner,
        count: u32,
        epoch: u64,
    ) -> BoxFuture<'a, Result<(), SessionStoreError>> {
        self.exchange(move |data| {
            if let Some(stored) = data.open(id, Some(epoch)) {
                let taken = stored.take(owner, count);
                *stored.claims.entry(ClaimOwner::Nobody).or_default() += taken;
            }
        })
    }

    fn load<'a>(&'a self, id: &'a SessionId) -> BoxFuture<'a, Result<Option<NewSession>, SessionStoreError>> {
        self.exchange(move |data| data.open(id, None).map(|stored| stored.request.clone()))
    }

    fn find<'a>(
        &'a self,
        instance: &'a SessionId,
    ) -> BoxFuture<'a, Result<Option<SessionId>, SessionStoreError>> {
        self.exchange(move |data| data.instances.get(instance).copied())
    }

    fn states<'a>(
        &'a self,
        ids: &'a [SessionId],
    ) -> BoxFuture<'a, Result<Vec<SharedState>, SessionStoreError>> {
        self.exchange(move |data| {
            let states = ids.iter().map(|id| match data.sessions.get(id) {
                None => SharedState::Unknown,
                Some(Stored { epoch, is_open: true, .. }) => SharedState::Open(*epoch),
                Some(Stored { epoch, .. }) => SharedState::Closed(*epoch),
            });
            states.collect()
        })
    }

    fn is_connected(&self) -> bool {
        true
    }
}

fn server(store: &Arc<Store>) -> Arc<Host> {
    server_with(store, SessionLimits::default())
}

fn server_with(store: &Arc<Store>, limits: SessionLimits) -> Arc<Host> {
    let adapters = Adapters::builder(Handle::current()).add::<Probe>().build().unwrap();
    let host = Host::new(adapters, TableLimits::default(), Closing::on(Handle::current()));
    let key = SessionKey::new(&[7; SessionKey::MIN_LENGTH]).unwrap();
    let options = SessionOptions::default().key(key).lookup(SessionLookup::Any).limits(limits);
    Arc::new(host.with_session_options(options).with_session_store(store.clone(), None))
}

/// The only peer of all servers, which has another connection to each.
fn caller() -> Caller {
    Caller { connection: 1, peer: Some("mixer".into()), ..Caller::default() }
}

fn request(instance: &str, template: &str) -> NewSession {
    let adapter_config = any(&probe("shared sessions"));
    NewSession { adapter_config, inferred_types: [inferred(instance, template)].into() }
}

async fn create(host: &Host) -> SessionId {
    host.create_session(request(ENTRY, "listentry"), &caller()).await.unwrap()
}

async fn close(host: &Host, id: SessionId) -> Result<(), Code> {
    host.close_session(&id.to_string(), &caller()).await.map_err(|error| error.code())
}

/// Calls with the id of a session, or without.
async fn try_call(host: &Host, id: Option<SessionId>) -> Result<(), CallError> {
    let config = id.and_then(|id| session_id(&id.to_string()));
    let request = entry(config, "allow").encode_to_vec().into();
    host.call(ListEntry::METHOD, request, caller()).await.unwrap().map(drop)
}

async fn call(host: &Host, id: SessionId) -> Result<(), Code> {
    try_call(host, Some(id)).await.map_err(|error| error.code())
}

/// Waits until nothing goes on: only then does the paused clock move.
async fn settle() {
    sleep(Duration::from_millis(1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_claimed_while_its_last_claim_is_closed_goes_on() {
    let store = Arc::<Store>::default();
    let (one, other) = (server(&store), server(&store));
    for closing in [&one, &other] {
        let id = create(&one).await;
        store.set_waits(true);
        let closed = tokio::spawn({
            let host = closing.clone();
            async move { close(&host, id).await }
        });
        settle().await;
        // It has run, and its answer waits.
        store.go_on(0);
        // Without its turn, so that the store does not know the claim.
        assert_eq!(create(closing).await, id);
        store.set_waits(false);
        assert_eq!(closed.await.unwrap(), Ok(()));
        assert_eq!(call(closing, id).await, Ok(()));
        closing.synchronize_sessions().await;
        assert_eq!(call(&server(&store), id).await, Ok(()));
        assert_eq!(close(closing, id).await, Ok(()));
        assert_eq!(call(closing, id).await, Err(Code::NotFound));
        one.synchronize_sessions().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_ends_when_its_own_epoch_is_closed() {
    let store = Arc::<Store>::default();
    let host = server(&store);
    let id = create(&host).await;
    let other_epoch = store.data.lock().unwrap().last_epoch + 1;
    store.change(&id, |stored| (stored.epoch, stored.is_open) = (other_epoch, false));
    host.synchronize_sessions().await;
    for host in [&host, &server(&store)] {
        assert_eq!(call(host, id).await, Ok(()), "another epoch was closed");
    }
    // The server has added its claims to that epoch.
    store.change(&id, |stored| stored.is_open = false);
    host.synchronize_sessions().await;
    assert_eq!(call(&host, id).await, Err(Code::NotFound));
}

#[tokio::test(start_paused = true)]
async fn a_stored_request_with_another_id_is_not_the_session_and_nothing_else_answers() {
    let store = Arc::<Store>::default();
    let id = create(&server(&store)).await;
    store.change(&id, |stored| stored.request = request("another", "listentry"));
    let other = server(&store);
    for id_of_call in [Some(id), None] {
        let error = try_call(&other, id_of_call).await.unwrap_err();
        assert_eq!(error.code(), Code::NotFound);
        assert!(!error.to_string().contains(&id.to_string()), "an id gives access: {error}");
    }
}

#[tokio::test(start_paused = true)]
async fn instances_without_a_common_session_do_not_hide_the_session_of_one() {
    let store = Arc::<Store>::default();
    server(&store).create_session(request("a", "metric"), &caller()).await.unwrap();
    // Without room for a session, each call asks the store.
    let other = server_with(&store, SessionLimits::default().sessions(0));
    let report = async |names: &[&str]| {
        let mut report = metrics(None, &vec!["allow"; names.len()]);
        report
            .instances
            .iter_mut()
            .zip(names)
            .for_each(|(instance, name)| instance.name = (*name).to_owned());
        let answer = other.call(Metric::METHOD, report.encode_to_vec().into(), caller()).await.unwrap();
        answer.map(drop).map_err(|error| error.code())
    };
    assert_eq!(report(&["a", "b"][..]).await, Err(Code::FailedPrecondition));
    assert_eq!(report(&["a"][..]).await, Ok(()));
}

/// What happens next; numbers name a server, or an exchange that waits.
#[derive(Clone, Copy, Debug)]
enum Event {
    Create(usize),
    Close(usize),
    Synchronize(usize),
    GoOn(usize),
    /// Time passes until nothing waits for its turn.
    Pass,
}

fn event() -> impl Strategy<Value = Event> {
    let server = 0..2_usize;
    prop_oneof![
        4 => server.clone().prop_map(Event::Create),
        4 => server.clone().prop_map(Event::Close),
        2 => server.prop_map(Event::Synchronize),
        8 => (0..4_usize).prop_map(Event::GoOn),
        2 => Just(Event::Pass),
    ]
}

/// Runs events on two servers. In the end, a session with more claims than were closed is found on both.
async fn run(events: Vec<Event>) {
    let id = create(&server(&Arc::default())).await;
    let store = Arc::<Store>::default();
    let servers = [server(&store), server(&store)];
    let mut changes = Vec::new();
    store.set_waits(true);
    for event in events {
        match event {
            Event::Create(at) => {
                let host = servers[at].clone();
                changes.push(tokio::spawn(async move {
                    create(&host).await;
                    1
                }));
            }
            Event::Close(at) => {
                let host = servers[at].clone();
                changes.push(tokio::spawn(async move { -i32::from(close(&host, id).await.is_ok()) }));
            }
            Event::Synchronize(at) => {
                let host = servers[at].clone();
                changes.push(tokio::spawn(async move {
                    host.synchronize_sessions().await;
                    0
                }));
            }
            Event::GoOn(at) => store.go_on(at),
            Event::Pass => sleep(Duration::from_secs(1)).await,
        }
        settle().await;
    }
    store.set_waits(false);
    let mut left = 0;
    for change in changes {
        left += change.await.unwrap();
    }
    // What the first one sends can concern the second one, and the other way round.
    for host in servers.iter().chain(&servers) {
        host.synchronize_sessions().await;
    }
    if left > 0 {
        for host in &servers {
            assert_eq!(call(host, id).await, Ok(()), "{left} claims are left");
        }
    }
}

proptest! {
    #![proptest_config(cases(100))]
    #[test]
    fn a_session_with_claims_is_found_whatever_is_answered_late(events in vec(event(), 1..60)) {
        let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(run(events));
    }
}
