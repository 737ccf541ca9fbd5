#![allow(clippy::unwrap_used)]

use std::{pin::Pin, sync::Mutex};

use futures_util::{FutureExt as _, future::BoxFuture};
use serde_json::json;
use tokio::{
    sync::{Notify, oneshot, watch},
    time::Duration,
};

use super::*;
use crate::{Change, Content, Kind, Resource, ResourceName, collection, source::SourceStatus};

/// A source that offers what the test sends it, and reports the verdicts.
struct Scripted {
    name: &'static str,
    changes: mpsc::Receiver<(Vec<Change>, oneshot::Sender<Verdict>)>,
    reoffers: Arc<Reoffers>,
}

/// Counts how often a source was asked to offer again what was refused.
#[derive(Debug, Default)]
struct Reoffers(Mutex<usize>);

impl SourceHandle for Reoffers {
    fn status(&self) -> BoxFuture<'_, Option<SourceStatus>> {
        std::future::ready(None).boxed()
    }

    fn reoffer(&self) -> BoxFuture<'_, ()> {
        *self.0.lock().unwrap() += 1;
        std::future::ready(()).boxed()
    }
}

impl Source for Scripted {
    fn name(&self) -> String {
        self.name.to_owned()
    }

    fn handle(&self) -> Option<Arc<dyn SourceHandle>> {
        Some(self.reoffers.clone())
    }

    fn run(mut self: Box<Self>, mut offers: Offers) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move {
            while let Some((changes, decided)) = self.changes.recv().await {
                let update = Update { source: self.name.into(), changes, faults: Vec::new() };
                let _ = decided.send(offers.offer(update).await.unwrap());
            }
            std::future::pending::<()>().await;
        })
    }
}

/// The test's end of a source.
struct Script {
    changes: mpsc::Sender<(Vec<Change>, oneshot::Sender<Verdict>)>,
    reoffers: Arc<Reoffers>,
}

impl Script {
    async fn offer(&self, changes: &[Change]) -> oneshot::Receiver<Verdict> {
        let (decided, verdict) = oneshot::channel();
        self.changes.send((changes.to_vec(), decided)).await.unwrap();
        verdict
    }

    fn reoffers(&self) -> usize {
        *self.reoffers.0.lock().unwrap()
    }
}

fn part(name: &'static str, filter: CollectionFilter, required: &[&str]) -> (MergedSource, Script) {
    let (sender, changes) = mpsc::channel(1);
    let reoffers = Arc::<Reoffers>::default();
    let source = Box::new(Scripted { name, changes, reoffers: reoffers.clone() });
    let required = required.iter().map(|name| collection(name).unwrap()).collect();
    (MergedSource { source, filter, required }, Script { changes: sender, reoffers })
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
        let name = ResourceName::new(*name, Kind::Rule, "ns");
        Arc::new(Resource::new(name, collection.clone(), json!({}), "test"))
    };
    Change::new(collection.clone(), Content::Full(names.iter().map(resource).collect()))
}

fn start(sources: Vec<MergedSource>) -> mpsc::Receiver<Offer> {
    let (target, offers) = mpsc::channel(1);
    tokio::spawn(Acceptance::new(target).run(sources));
    offers
}

async fn next(offers: &mut mpsc::Receiver<Offer>) -> Offer {
    tokio::time::timeout(Duration::from_secs(5), offers.recv()).await.unwrap().unwrap()
}

fn content(offer: &Offer) -> (String, Vec<Change>) {
    (offer.content().source.to_string(), offer.content().changes.clone())
}

fn fault() -> Vec<Fault> {
    vec![Fault::error("no such handler")]
}

#[tokio::test]
async fn the_first_configuration_waits_for_all_required_collections() {
    let (rules, rules_script) = part("r", only("rules"), &["rules"]);
    let (others, others_script) = part("h", all_but("rules"), &["handlers"]);
    let (optional, _script) = part("o", only("istio/x/y"), &[]);
    let mut offers = start(vec![rules, others, optional]);
    let rules_verdict = rules_script.offer(&[full("rules", &["r"])]).await;
    tokio::task::yield_now().await;
    assert!(offers.try_recv().is_err(), "handlers are missing");
    let others_verdict = others_script.offer(&[full("handlers", &["h"])]).await;
    let both = next(&mut offers).await;
    assert_eq!(content(&both), ("h, r".to_owned(), vec![full("handlers", &["h"]), full("rules", &["r"])]));
    both.accept();
    assert_eq!((rules_verdict.await.unwrap(), others_verdict.await.unwrap()), (Ok(()), Ok(())));
}

#[tokio::test]
async fn a_source_that_can_read_nothing_is_not_waited_for() {
    let (source, script) = part("r", only("rules"), &["rules"]);
    let mut offers = start(vec![source]);
    let _verdict = script.offer(&[]).await;
    assert_eq!(content(&next(&mut offers).await), ("r".to_owned(), vec![]));
}

#[tokio::test]
async fn changes_of_collections_that_a_filter_excludes_are_removed() {
    let (rules, _script) = part("r", only("rules"), &[]);
    let (others, script) = part("h", all_but("rules"), &["handlers"]);
    let mut offers = start(vec![rules, others]);
    let removed = vec![ResourceName::new("gone", Kind::Handler, "ns")];
    let partial =
        Change::new(collection("handlers").unwrap(), Content::Partial { added: Vec::new(), removed });
    let _verdict = script.offer(&[full("rules", &["stray"]), partial.clone()]).await;
    assert_eq!(content(&next(&mut offers).await), ("h".to_owned(), vec![partial]));
}

#[tokio::test]
async fn offers_that_are_refused_together_are_tried_alone_and_again_after_each_that_is_accepted() {
    let (handlers, handlers_script) = part("h", only("handlers"), &["handlers"]);
    let (rules, rules_script) = part("r", only("rules"), &["rules"]);
    let (instances, instances_script) = part("i", only("instances"), &["instances"]);
    let mut offers = start(vec![handlers, rules, instances]);
    let first = handlers_script.offer(&[full("handlers", &["h"])]).await;
    let second = rules_script.offer(&[full("rules", &["r"])]).await;
    let third = instances_script.offer(&[full("instances", &["i"])]).await;
    let all = next(&mut offers).await;
    assert_eq!(all.content().changes.len(), 3);
    all.refuse(fault());
    let mut tried = Vec::new();
    for accepted in [false, true, true, false] {
        let offer = next(&mut offers).await;
        tried.push(offer.content().source.to_string());
        if accepted { offer.accept() } else { offer.refuse(fault()) }
    }
    assert_eq!(tried, ["h", "i", "r", "h"], "in Mixer's order of kinds");
    let verdicts = (first.await.unwrap(), second.await.unwrap(), third.await.unwrap());
    assert_eq!(verdicts, (Err(fault()), Ok(()), Ok(())));
}

#[tokio::test]
async fn a_source_offers_again_what_was_refused_when_an_offer_of_another_is_accepted() {
    let ((rules, rules_script), (others, others_script)) =
        (part("r", only("rules"), &[]), part("h", all_but("rules"), &[]));
    let mut offers = start(vec![rules, others]);
    let verdict = rules_script.offer(&[full("rules", &["r"])]).await;
    next(&mut offers).await.refuse(fault());
    assert_eq!(verdict.await.unwrap(), Err(fault()));
    let verdict = others_script.offer(&[full("handlers", &["bad"])]).await;
    next(&mut offers).await.refuse(fault());
    verdict.await.unwrap().unwrap_err();
    assert_eq!((rules_script.reoffers(), others_script.reoffers()), (0, 0));
    let verdict = others_script.offer(&[full("handlers", &["h"])]).await;
    next(&mut offers).await.accept();
    verdict.await.unwrap().unwrap();
    tokio::time::timeout(Duration::from_secs(5), async {
        while rules_script.reoffers() == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
    assert_eq!((rules_script.reoffers(), others_script.reoffers()), (1, 0));
}

/// A source that offers its newest state when it changes, and again when it is asked to, as files do.
struct Latest {
    state: watch::Receiver<Vec<String>>,
    collection: &'static str,
    again: Arc<Again>,
}

#[derive(Debug, Default)]
struct Again(Notify);

impl SourceHandle for Again {
    fn status(&self) -> BoxFuture<'_, Option<SourceStatus>> {
        std::future::ready(None).boxed()
    }

    fn reoffer(&self) -> BoxFuture<'_, ()> {
        self.0.notify_one();
        std::future::ready(()).boxed()
    }
}

impl Source for Latest {
    fn name(&self) -> String {
        self.collection.to_owned()
    }

    fn handle(&self) -> Option<Arc<dyn SourceHandle>> {
        Some(self.again.clone())
    }

    fn run(mut self: Box<Self>, mut offers: Offers) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move {
            loop {
                let names = self.state.borrow_and_update().clone();
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                let changes = vec![full(self.collection, &names)];
                let update = Update { source: self.collection.into(), changes, faults: Vec::new() };
                if offers.offer(update).await.is_none() {
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

/// Takes rules only with all the handlers that are named like them.
struct Checked(watch::Sender<(BTreeSet<String>, BTreeSet<String>)>);

impl Apply for Checked {
    async fn apply(&mut self, update: Update) -> Verdict {
        let (rules, handlers) = self.0.borrow().clone();
        let rules = names_in(&update, "rules").unwrap_or(rules);
        let handlers = names_in(&update, "handlers").unwrap_or(handlers);
        if !rules.is_subset(&handlers) {
            return Err(fault());
        }
        self.0.send_replace((rules, handlers));
        Ok(())
    }
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]

    /// Whatever was offered in whatever order: once the states of both sources fit together, they are in use.
    #[test]
    fn states_that_fit_together_in_the_end_are_in_use(
        steps in proptest::collection::vec((proptest::bool::ANY, 0u8..8, 0u64..3), 0..12),
        last in 0u8..8,
    ) {
        let names = |bits: u8| -> Vec<String> {
            (0..3).filter(|bit| bits >> bit & 1 == 1).map(|bit| format!("n{bit}")).collect()
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let (rules_state, rules) = watch::channel(Vec::new());
            let (handlers_state, handlers) = watch::channel(Vec::new());
            let merged = |state, short| {
                let source = Latest { state, collection: short, again: Arc::default() };
                let required = BTreeSet::from([collection(short).unwrap()]);
                MergedSource { source: Box::new(source), filter: only(short), required }
            };
            let (applied, mut in_use) = watch::channel(Default::default());
            let sources = vec![merged(rules, "rules"), merged(handlers, "handlers")];
            tokio::spawn(Acceptance::new(Checked(applied)).run(sources));
            for (is_rules, bits, pause) in steps {
                if is_rules { &rules_state } else { &handlers_state }.send_replace(names(bits));
                for _ in 0..pause {
                    tokio::task::yield_now().await;
                }
            }
            rules_state.send_replace(names(last));
            // Long enough for the rules to be refused.
            tokio::time::sleep(Duration::from_millis(1)).await;
            handlers_state.send_replace(names(7));
            let expected = (names(last).into_iter().collect(), names(7).into_iter().collect());
            let converged = tokio::time::timeout(Duration::from_secs(5), in_use.wait_for(|in_use| *in_use == expected)).await;
            assert!(converged.is_ok(), "states that fit together are not in use");
        });
    }
}
