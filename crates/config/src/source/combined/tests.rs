#![allow(clippy::unwrap_used)]

use std::sync::Mutex;

use futures_util::{FutureExt as _, future::BoxFuture};
use serde_json::json;
use tokio::{
    sync::{Notify, oneshot, watch},
    time::Duration,
};

use super::*;
use crate::{Kind, Resource, ResourceName, collection, source::SourceStatus};

/// A source that sends what the test says.
struct Told {
    name: &'static str,
    says: mpsc::Receiver<(Vec<Change>, oneshot::Sender<Answer>)>,
    asked_again: Arc<Asked>,
}

#[derive(Debug, Default)]
struct Asked(Mutex<usize>);

impl Watched for Asked {
    fn status(&self) -> BoxFuture<'_, Option<SourceStatus>> {
        std::future::ready(None).boxed()
    }

    fn reconsider(&self) -> BoxFuture<'_, ()> {
        *self.0.lock().unwrap() += 1;
        std::future::ready(()).boxed()
    }
}

impl Source for Told {
    fn name(&self) -> String {
        self.name.to_owned()
    }

    fn watched(&self) -> Vec<Arc<dyn Watched>> {
        vec![self.asked_again.clone()]
    }

    fn run(mut self: Box<Self>, updates: mpsc::Sender<Update>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move {
            while let Some((changes, told)) = self.says.recv().await {
                let (update, answer) = Update::new(self.name.into(), changes, Vec::new());
                updates.send(update).await.unwrap();
                let _ = told.send(answer.await.unwrap());
            }
            std::future::pending().await
        })
    }
}

/// The test's end of one.
struct Voice {
    says: mpsc::Sender<(Vec<Change>, oneshot::Sender<Answer>)>,
    asked_again: Arc<Asked>,
}

impl Voice {
    async fn say(&self, changes: &[Change]) -> oneshot::Receiver<Answer> {
        let (told, answer) = oneshot::channel();
        self.says.send((changes.to_vec(), told)).await.unwrap();
        answer
    }

    fn asked_again(&self) -> usize {
        *self.asked_again.0.lock().unwrap()
    }
}

fn part(name: &'static str, filter: CollectionFilter, required: bool) -> (Part, Voice) {
    let (says, said) = mpsc::channel(1);
    let asked_again = Arc::<Asked>::default();
    let source = Box::new(Told { name, says: said, asked_again: asked_again.clone() });
    (Part { source, filter, required }, Voice { says, asked_again })
}

fn only(name: &str) -> CollectionFilter {
    CollectionFilter::Only(BTreeSet::from([collection(name).unwrap()]))
}

fn all_but(name: &str) -> CollectionFilter {
    CollectionFilter::AllBut(BTreeSet::from([collection(name).unwrap()]))
}

fn full(short: &str, names: &[&str]) -> Change {
    let collection = collection(short).unwrap();
    let resource = |name: &&str| {
        Resource::new(ResourceName::new(*name, Kind::Rule, "ns"), collection.clone(), json!({}), "test")
    };
    Change::new(collection.clone(), Content::Full(names.iter().map(resource).collect()))
}

fn start(parts: Vec<Part>) -> mpsc::Receiver<Update> {
    let (updates, received) = mpsc::channel(1);
    tokio::spawn(Box::new(Combined::new(parts)).run(updates));
    received
}

async fn next(updates: &mut mpsc::Receiver<Update>) -> Update {
    tokio::time::timeout(Duration::from_secs(5), updates.recv()).await.unwrap().unwrap()
}

fn brought(update: &Update) -> (String, Vec<Change>) {
    (update.source.to_string(), update.changes.clone())
}

fn fault() -> Vec<Fault> {
    vec![Fault::error("no such handler")]
}

#[tokio::test]
async fn the_first_updates_of_all_required_sources_are_one() {
    let ((rules, says_rules), (rest, says_rest)) =
        (part("r", only("rules"), true), part("h", all_but("rules"), true));
    let (optional, _says) = part("o", only("istio/x/y"), false);
    let mut updates = start(vec![rules, rest, optional]);
    let rules_answer = says_rules.say(&[full("rules", &["r"])]).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(updates.try_recv().is_err(), "rules alone mean nothing");
    let rest_answer = says_rest.say(&[full("handlers", &["h"])]).await;
    let update = next(&mut updates).await;
    assert_eq!(brought(&update), ("r, h".to_owned(), vec![full("rules", &["r"]), full("handlers", &["h"])]));
    update.responder.ack();
    assert_eq!((rules_answer.await.unwrap(), rest_answer.await.unwrap()), (Answer::Applied, Answer::Applied));
}

#[tokio::test]
async fn what_a_source_says_of_the_collections_of_another_is_left_out_and_its_own_passes_as_it_is() {
    let ((rules, _says), (rest, says_rest)) =
        (part("r", only("rules"), false), part("h", all_but("rules"), true));
    let mut updates = start(vec![rules, rest]);
    let removed = vec![ResourceName::new("gone", Kind::Handler, "ns")];
    let partial =
        Change::new(collection("handlers").unwrap(), Content::Partial { added: Vec::new(), removed });
    let _answer = says_rest.say(&[full("rules", &["stray"]), partial.clone()]).await;
    assert_eq!(brought(&next(&mut updates).await), ("h".to_owned(), vec![partial]));
}

#[tokio::test]
async fn what_is_refused_together_is_tried_in_the_order_that_works() {
    let ((rules, says_rules), (rest, says_rest)) =
        (part("r", only("rules"), true), part("h", all_but("rules"), true));
    let mut updates = start(vec![rules, rest]);
    let rules_answer = says_rules.say(&[full("rules", &["r"])]).await;
    let rest_answer = says_rest.say(&[full("handlers", &["h"])]).await;
    next(&mut updates).await.responder.reject(fault());
    let mut tried = Vec::new();
    for accepted in [false, true, true] {
        let update = next(&mut updates).await;
        tried.push(update.source.to_string());
        if accepted { update.responder.ack() } else { update.responder.reject(fault()) }
    }
    assert_eq!(tried.iter().filter(|name| *name == "r").count(), 2, "{tried:?}");
    assert_eq!((rules_answer.await.unwrap(), rest_answer.await.unwrap()), (Answer::Applied, Answer::Applied));
}

#[tokio::test]
async fn a_source_that_was_refused_is_asked_again_when_another_is_accepted_and_not_before() {
    let ((rules, says_rules), (rest, says_rest)) =
        (part("r", only("rules"), false), part("h", all_but("rules"), false));
    let mut updates = start(vec![rules, rest]);
    let answer = says_rules.say(&[full("rules", &["r"])]).await;
    next(&mut updates).await.responder.reject(fault());
    assert_eq!(answer.await.unwrap(), Answer::Rejected(fault()));
    let answer = says_rest.say(&[full("handlers", &["bad"])]).await;
    next(&mut updates).await.responder.reject(fault());
    answer.await.unwrap();
    assert_eq!((says_rules.asked_again(), says_rest.asked_again()), (0, 0));
    let answer = says_rest.say(&[full("handlers", &["h"])]).await;
    next(&mut updates).await.responder.ack();
    assert_eq!(answer.await.unwrap(), Answer::Applied);
    tokio::time::timeout(Duration::from_secs(5), async {
        while says_rules.asked_again() == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
    assert_eq!((says_rules.asked_again(), says_rest.asked_again()), (1, 0));
}

/// A source that says its newest state when that changes, and again when it is asked to, as files do.
struct Restated {
    state: watch::Receiver<Vec<String>>,
    collection: &'static str,
    again: Arc<Again>,
}

#[derive(Debug, Default)]
struct Again(Notify);

impl Watched for Again {
    fn status(&self) -> BoxFuture<'_, Option<SourceStatus>> {
        std::future::ready(None).boxed()
    }

    fn reconsider(&self) -> BoxFuture<'_, ()> {
        self.0.notify_one();
        std::future::ready(()).boxed()
    }
}

impl Source for Restated {
    fn name(&self) -> String {
        self.collection.to_owned()
    }

    fn watched(&self) -> Vec<Arc<dyn Watched>> {
        vec![self.again.clone()]
    }

    fn run(mut self: Box<Self>, updates: mpsc::Sender<Update>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move {
            loop {
                let names = self.state.borrow_and_update().clone();
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                let changes = vec![full(self.collection, &names)];
                let (update, answer) = Update::new(self.collection.into(), changes, Vec::new());
                if updates.send(update).await.is_err() || answer.await.is_err() {
                    return;
                }
                tokio::select! {
                    Ok(()) = self.state.changed() => {}
                    () = self.again.0.notified() => {}
                }
            }
        })
    }
}

/// The names in a collection, where an update has it.
fn names_in(update: &Update, short: &str) -> Option<BTreeSet<String>> {
    let of = collection(short).unwrap();
    let change = update.changes.iter().find(|change| change.collection == of)?;
    let Content::Full(resources) = &change.content else { return None };
    Some(resources.iter().map(|resource| resource.name.name().to_owned()).collect())
}

/// Rules are taken only with all the handlers that they are called after, and handlers only while no rule lacks them.
async fn decide(
    mut updates: mpsc::Receiver<Update>,
    held: watch::Sender<(BTreeSet<String>, BTreeSet<String>)>,
) {
    while let Some(update) = updates.recv().await {
        let (rules, handlers) = held.borrow().clone();
        let rules = names_in(&update, "rules").unwrap_or(rules);
        let handlers = names_in(&update, "handlers").unwrap_or(handlers);
        match rules.is_subset(&handlers) {
            true => {
                held.send_replace((rules, handlers));
                update.responder.ack();
            }
            false => update.responder.reject(fault()),
        }
    }
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]

    /// Whatever is said in whatever order: once what both sources have fits together, it is in use, and nothing else is.
    #[test]
    fn what_fits_together_in_the_end_is_in_use(
        steps in proptest::collection::vec((proptest::bool::ANY, 0u8..8, 0u64..3), 0..12),
        last in 0u8..8,
    ) {
        let names = |bits: u8| -> Vec<String> {
            (0..3).filter(|bit| bits >> bit & 1 == 1).map(|bit| format!("n{bit}")).collect()
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let (says_rules, rules) = watch::channel(Vec::new());
            let (says_handlers, handlers) = watch::channel(Vec::new());
            let of = |state, short| {
                let source = Restated { state, collection: short, again: Arc::default() };
                Part { source: Box::new(source), filter: only(short), required: true }
            };
            let updates = start(vec![of(rules, "rules"), of(handlers, "handlers")]);
            let (held, mut seen) = watch::channel(Default::default());
            tokio::spawn(decide(updates, held));
            for (is_rules, bits, pause) in steps {
                if is_rules { &says_rules } else { &says_handlers }.send_replace(names(bits));
                for _ in 0..pause {
                    tokio::task::yield_now().await;
                }
            }
            says_rules.send_replace(names(last));
            // Time enough to be refused for want of handlers.
            tokio::time::sleep(Duration::from_millis(1)).await;
            says_handlers.send_replace(names(7));
            let expected = (names(last).into_iter().collect(), names(7).into_iter().collect());
            let held = tokio::time::timeout(Duration::from_secs(5), seen.wait_for(|held| *held == expected)).await;
            assert!(held.is_ok(), "what fits together is not in use");
        });
    }
}
