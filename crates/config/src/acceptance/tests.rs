#![allow(clippy::unwrap_used)]

use std::pin::Pin;

use serde_json::json;
use tokio::sync::{oneshot, watch};

use super::*;
use crate::{
    change::{Change, Content},
    collection_filter::CollectionFilter,
    name::{Kind, ResourceName},
    offer::Decisions,
    resource::Resource,
    source::Source,
};

/// A collection by its full name, or one of Mixer by the last segment.
fn collection(name: &str) -> Collection {
    let short = |collection: &Collection| collection.as_str().rsplit('/').next() == Some(name);
    Collection::mixer().find(short).unwrap_or_else(|| Collection::new(name))
}

/// A source that offers the updates of the test.
struct Scripted {
    name: &'static str,
    changes: mpsc::Receiver<(Vec<Change>, oneshot::Sender<Decisions>)>,
}

impl Source for Scripted {
    fn name(&self) -> String {
        self.name.to_owned()
    }

    fn run(mut self: Box<Self>, mut offers: Offers) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move {
            while let Some((changes, offered)) = self.changes.recv().await {
                let update = Update { source: self.name.into(), changes, faults: Vec::new() };
                let _ = offered.send(offers.offer(update).await.unwrap());
            }
            std::future::pending::<()>().await;
        })
    }
}

/// The test's handle to a source.
struct Script {
    changes: mpsc::Sender<(Vec<Change>, oneshot::Sender<Decisions>)>,
}

impl Script {
    async fn offer(&self, changes: &[Change]) -> Decisions {
        let (offered, decisions) = oneshot::channel();
        self.changes.send((changes.to_vec(), offered)).await.unwrap();
        decisions.await.unwrap()
    }
}

fn part(name: &'static str, filter: CollectionFilter, required: &[&str]) -> (MergedSource, Script) {
    let (sender, changes) = mpsc::channel(1);
    let source = Box::new(Scripted { name, changes });
    let required = required.iter().map(|name| collection(name)).collect();
    let source = MergedSource { source, filter, required, skip_bad_resources: false };
    (source, Script { changes: sender })
}

fn only(name: &str) -> CollectionFilter {
    CollectionFilter::Only(BTreeSet::from([collection(name)]))
}

fn all_but(name: &str) -> CollectionFilter {
    CollectionFilter::AllBut(BTreeSet::from([collection(name)]))
}

fn full(short: &str, names: &[&str]) -> Change {
    let collection = collection(short);
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

fn fault() -> Vec<ValidationError> {
    vec![ValidationError::error("no such handler")]
}

async fn decision(decisions: &mut Decisions) -> Option<Decision> {
    tokio::time::timeout(Duration::from_secs(5), decisions.next()).await.unwrap()
}

#[tokio::test]
async fn the_first_configuration_waits_for_all_required_collections() {
    let (rules, rules_script) = part("r", only("rules"), &["rules"]);
    let (others, others_script) = part("h", all_but("rules"), &["handlers"]);
    let (optional, _script) = part("o", only("istio/x/y"), &[]);
    let mut offers = start(vec![rules, others, optional]);
    let mut rules = rules_script.offer(&[full("rules", &["r"])]).await;
    assert_eq!(decision(&mut rules).await, Some(Decision::Pending), "answered when it comes");
    assert!(offers.try_recv().is_err(), "handlers are missing");
    let mut others = others_script.offer(&[full("handlers", &["h"])]).await;
    let both = next(&mut offers).await;
    assert_eq!(content(&both), ("h, r".to_owned(), vec![full("handlers", &["h"]), full("rules", &["r"])]));
    both.accept();
    assert_eq!(decision(&mut rules).await, Some(Decision::Live));
    assert_eq!(decision(&mut others).await, Some(Decision::Live));
}

fn bad_rule() -> Vec<ValidationError> {
    vec![ValidationError::error("bad").of(ResourceName::new("r", Kind::Rule, "ns"))]
}

#[tokio::test]
async fn a_fault_of_one_source_delays_the_first_configuration_of_all() {
    let (rules, rules_script) = part("r", only("rules"), &["rules"]);
    let (others, others_script) = part("h", all_but("rules"), &["handlers"]);
    let mut offers = start(vec![rules, others]);
    let mut rules = rules_script.offer(&[full("rules", &["r"])]).await;
    assert_eq!(decision(&mut rules).await, Some(Decision::Pending));
    let mut others = others_script.offer(&[full("handlers", &["h"])]).await;
    assert_eq!(decide(&mut offers, &[Err(bad_rule())]).await, ["h, r"], "and nothing without the rule");
    assert_eq!(decision(&mut rules).await, Some(Decision::Refused(bad_rule())));
    assert_eq!(decision(&mut others).await, Some(Decision::Pending));
    let mut others = others_script.offer(&[full("handlers", &["h", "i"])]).await;
    assert_eq!(decide(&mut offers, &[Err(bad_rule())]).await, ["h, r"]);
    assert_eq!(decision(&mut others).await, Some(Decision::Pending));
    let mut rules = rules_script.offer(&[full("rules", &["s"])]).await;
    assert_eq!(decide(&mut offers, &[Ok(())]).await, ["h, r"], "a push of one collection repairs it");
    assert_eq!(decision(&mut rules).await, Some(Decision::Live));
    assert_eq!(decision(&mut others).await, Some(Decision::Live));
}

#[tokio::test]
async fn faults_without_a_resource_refuse_the_whole_first_configuration() {
    let (rules, rules_script) = part("r", only("rules"), &["rules"]);
    let (others, others_script) = part("h", all_but("rules"), &["handlers"]);
    let mut offers = start(vec![rules, others]);
    let mut decisions = [
        rules_script.offer(&[full("rules", &["r"])]).await,
        others_script.offer(&[full("handlers", &["h"])]).await,
    ];
    assert_eq!(decide(&mut offers, &[Err(fault())]).await, ["h, r"]);
    let mut refused = Vec::new();
    for decisions in &mut decisions {
        while refused.last() != Some(&Some(Decision::Refused(fault()))) {
            refused.push(decision(decisions).await);
        }
        refused.clear();
    }
}

#[tokio::test]
async fn a_source_that_cannot_be_read_delays_the_first_configuration_of_others() {
    let (rules, rules_script) = part("r", only("rules"), &["rules"]);
    let (others, others_script) = part("h", all_but("rules"), &["handlers"]);
    let mut offers = start(vec![rules, others]);
    let mut others = others_script.offer(&[full("handlers", &["h"])]).await;
    assert_eq!(decision(&mut others).await, Some(Decision::Pending));
    let _nothing = rules_script.offer(&[]).await;
    assert_eq!(decide(&mut offers, &[Err(fault())]).await, ["h, r"]);
    let rules = rules_script.offer(&[full("rules", &["r"])]).await;
    assert_eq!(decide(&mut offers, &[Ok(())]).await, ["h, r"]);
    drop(rules);
}

#[tokio::test]
async fn a_faulty_collection_that_is_not_required_is_left_out_of_the_first_configuration() {
    let (source, script) = part("s", CollectionFilter::default(), &["handlers"]);
    let (rules, rules_script) = part("r", only("rules"), &[]);
    let mut offers = start(vec![source, rules]);
    let mut rules = rules_script.offer(&[full("rules", &["r"])]).await;
    assert_eq!(decision(&mut rules).await, Some(Decision::Pending));
    let mut handlers = script.offer(&[full("handlers", &["h"])]).await;
    assert_eq!(decide(&mut offers, &[Err(bad_rule()), Ok(()), Err(bad_rule())]).await, ["s, r", "s", "r"]);
    assert_eq!(decision(&mut handlers).await, Some(Decision::Live));
    assert_eq!(decision(&mut rules).await, Some(Decision::Refused(bad_rule())));
}

#[tokio::test]
async fn the_faults_of_a_refused_first_configuration_include_those_of_optional_collections_that_it_needs() {
    let (rules, rules_script) = part("r", only("rules"), &["rules"]);
    let (handlers, handlers_script) = part("h", only("handlers"), &[]);
    let mut offers = start(vec![rules, handlers]);
    let mut handlers = handlers_script.offer(&[full("handlers", &["h"])]).await;
    assert_eq!(decision(&mut handlers).await, Some(Decision::Pending));
    let mut rules = rules_script.offer(&[full("rules", &["r"])]).await;
    let bad_handler = || vec![ValidationError::error("bad").of(ResourceName::new("h", Kind::Rule, "ns"))];
    let refusals = [Err(bad_handler()), Err(bad_rule())];
    assert_eq!(decide(&mut offers, &refusals).await, ["h, r", "r"], "the rule refers to the handler");
    assert_eq!(decision(&mut handlers).await, Some(Decision::Refused(bad_handler())), "the cause");
    assert_eq!(decision(&mut rules).await, Some(Decision::Refused(bad_rule())));
}

#[tokio::test]
async fn the_first_configuration_lacks_resources_that_may_be_skipped() {
    let (rules, rules_script) = part("r", only("rules"), &["rules"]);
    let (others, others_script) = part("h", all_but("rules"), &["handlers"]);
    let mut offers = start(vec![MergedSource { skip_bad_resources: true, ..rules }, others]);
    let mut decisions = rules_script.offer(&[full("rules", &["q", "r"])]).await;
    let _handlers = others_script.offer(&[full("handlers", &["h"])]).await;
    decide(&mut offers, &[Err(bad_rule())]).await;
    let offer = next(&mut offers).await;
    assert_eq!(names_in(offer.content(), "rules"), Some(BTreeSet::from(["q".to_owned()])));
    offer.accept();
    while decision(&mut decisions).await != Some(Decision::Live) {}
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
    let partial = Change::new(collection("handlers"), Content::Partial { added: Vec::new(), removed });
    let _verdict = script.offer(&[full("rules", &["stray"]), partial.clone()]).await;
    assert_eq!(content(&next(&mut offers).await), ("h".to_owned(), vec![partial]));
}

/// Decides on the next offers in this order; returns the sources of each.
async fn decide(offers: &mut mpsc::Receiver<Offer>, verdicts: &[Verdict]) -> Vec<String> {
    let mut tried = Vec::new();
    for verdict in verdicts {
        let offer = next(offers).await;
        tried.push(offer.content().source.to_string());
        match verdict {
            Ok(()) => offer.accept(),
            Err(faults) => offer.refuse(faults.clone()),
        }
    }
    tried
}

/// Three sources that have offered a collection each, in one batch.
async fn three() -> (mpsc::Receiver<Offer>, [Decisions; 3], [Script; 3]) {
    let (handlers, handlers_script) = part("h", only("handlers"), &[]);
    let (rules, rules_script) = part("r", only("rules"), &[]);
    let (instances, instances_script) = part("i", only("instances"), &[]);
    let (others, others_script) = part("o", only("istio/x/y"), &[]);
    let mut offers = start(vec![handlers, rules, instances, others]);
    // The others arrive while this one is decided on, and are in one batch.
    let _first = others_script.offer(&[full("istio/x/y", &[])]).await;
    let first = next(&mut offers).await;
    let decisions = [
        handlers_script.offer(&[full("handlers", &["h"])]).await,
        rules_script.offer(&[full("rules", &["r"])]).await,
        instances_script.offer(&[full("instances", &["i"])]).await,
    ];
    first.accept();
    (offers, decisions, [handlers_script, rules_script, instances_script])
}

#[tokio::test]
async fn offers_that_are_refused_together_are_tried_alone_and_the_rest_again_after_those_that_are_accepted() {
    let (mut offers, [mut handlers, mut rules, mut instances], _scripts) = three().await;
    let refused = || Err(fault());
    let verdicts = [refused(), refused(), Ok(()), Ok(()), refused()];
    let tried = decide(&mut offers, &verdicts).await;
    assert_eq!(tried, ["h, i, r", "h", "i", "r", "h"], "in Mixer's order of kinds");
    assert_eq!(decision(&mut handlers).await, Some(Decision::Refused(fault())));
    assert_eq!(decision(&mut rules).await, Some(Decision::Live));
    assert_eq!(decision(&mut instances).await, Some(Decision::Live));
}

#[tokio::test]
async fn an_offer_that_the_faults_name_does_not_hold_up_the_others() {
    let (mut offers, [mut handlers, mut rules, _instances], _scripts) = three().await;
    let names_the_rule = || vec![ValidationError::error("bad").of(ResourceName::new("r", Kind::Rule, "ns"))];
    let verdicts = [Err(names_the_rule()), Ok(()), Err(names_the_rule())];
    assert_eq!(decide(&mut offers, &verdicts).await, ["h, i, r", "h, i", "r"]);
    assert_eq!(decision(&mut handlers).await, Some(Decision::Live));
    assert_eq!(decision(&mut rules).await, Some(Decision::Refused(names_the_rule())));
}

#[tokio::test]
async fn offers_that_need_each_other_come_into_use_beside_one_whose_faults_name_nothing() {
    let (mut offers, [mut handlers, mut rules, mut instances], _scripts) = three().await;
    let refused = || Err(fault());
    let verdicts = [refused(), refused(), refused(), refused(), Ok(()), refused()];
    assert_eq!(decide(&mut offers, &verdicts).await, ["h, i, r", "h", "i", "r", "i, r", "h"]);
    assert_eq!(decision(&mut handlers).await, Some(Decision::Refused(fault())));
    assert_eq!(decision(&mut rules).await, Some(Decision::Live));
    assert_eq!(decision(&mut instances).await, Some(Decision::Live));
}

#[tokio::test]
async fn a_refused_offer_is_tried_again_with_the_next_of_any_source_and_its_source_learns_the_outcome() {
    let ((rules, rules_script), (others, others_script)) =
        (part("r", only("rules"), &[]), part("h", all_but("rules"), &[]));
    let mut offers = start(vec![rules, others]);
    let mut rules = rules_script.offer(&[full("rules", &["r"])]).await;
    decide(&mut offers, &[Err(fault())]).await;
    assert_eq!(decision(&mut rules).await, Some(Decision::Refused(fault())));
    let mut handlers = others_script.offer(&[full("handlers", &["h"])]).await;
    assert_eq!(decide(&mut offers, &[Ok(())]).await, ["h, r"]);
    assert_eq!(decision(&mut handlers).await, Some(Decision::Live));
    assert_eq!(decision(&mut rules).await, Some(Decision::Live));
    assert_eq!(decision(&mut rules).await, None, "nothing can follow");
}

#[tokio::test]
async fn changes_add_to_a_refused_offer_of_their_collection_or_replace_it() {
    let (rules, script) = part("r", only("rules"), &[]);
    let mut offers = start(vec![rules]);
    let rules = |names: &[&str]| full("rules", names).content.resources().cloned().collect::<Vec<_>>();
    let whole = |names: &[&str]| full("rules", names).content;
    let name = |name: &str| ResourceName::new(name, Kind::Rule, "ns");
    let partial = |added: &[&str], removed: &[&str]| {
        let removed = removed.iter().map(|removed| name(removed)).collect();
        Change::new(collection("rules"), Content::Partial { added: rules(added), removed })
    };
    let tried = async |offers: &mut mpsc::Receiver<Offer>| {
        let offer = next(offers).await;
        let content = offer.content().changes[0].content.clone();
        offer.refuse(fault());
        content
    };
    let mut first = script.offer(&[partial(&["a", "b"], &["x"])]).await;
    tried(&mut offers).await;
    assert_eq!(decision(&mut first).await, Some(Decision::Refused(fault())));
    let _second = script.offer(&[partial(&["c", "x"], &["a", "y"])]).await;
    let both = Content::Partial { added: rules(&["b", "c", "x"]), removed: vec![name("a"), name("y")] };
    assert_eq!(tried(&mut offers).await, both);
    assert_eq!(decision(&mut first).await, None, "it is replaced");
    let _third = script.offer(&[full("rules", &["a", "d"])]).await;
    assert_eq!(tried(&mut offers).await, whole(&["a", "d"]));
    let _fourth = script.offer(&[partial(&["e"], &["a"])]).await;
    assert_eq!(tried(&mut offers).await, whole(&["d", "e"]));
}

#[tokio::test]
async fn bad_resources_that_are_skipped_come_into_use_once_they_fit() {
    let (rules, script) = part("r", only("rules"), &[]);
    let mut offers = start(vec![MergedSource { skip_bad_resources: true, ..rules }]);
    let named =
        |name: &str| vec![ValidationError::error("no handler").of(ResourceName::new(name, Kind::Rule, "ns"))];
    let tried = async |offers: &mut mpsc::Receiver<Offer>, verdict: Verdict| {
        let offer = next(offers).await;
        let names = names_in(offer.content(), "rules").unwrap();
        match verdict {
            Ok(()) => offer.accept(),
            Err(faults) => offer.refuse(faults),
        }
        names.into_iter().collect::<String>()
    };
    let mut decisions = script.offer(&[full("rules", &["a", "b", "c"])]).await;
    assert_eq!(tried(&mut offers, Err(named("a"))).await, "abc");
    assert_eq!(tried(&mut offers, Err(named("b"))).await, "bc");
    assert_eq!(tried(&mut offers, Ok(())).await, "c");
    assert_eq!(decision(&mut decisions).await, Some(Decision::Live));
    assert_eq!(tried(&mut offers, Err(fault())).await, "ab", "the others may be what they lack");
    let added = Content::Partial {
        added: full("rules", &["d"]).content.resources().cloned().collect(),
        removed: Vec::new(),
    };
    let _more = script.offer(&[Change::new(collection("rules"), added)]).await;
    assert_eq!(tried(&mut offers, Ok(())).await, "abd");
}

/// One source of rules and handlers, with updates of everything protected.
async fn protected() -> (mpsc::Receiver<Offer>, Script) {
    let (source, script) = part("s", CollectionFilter::default(), &["rules", "handlers"]);
    let (target, mut offers) = mpsc::channel(1);
    let losses = LossPolicy::Protect { delay: Duration::from_secs(10) };
    tokio::spawn(Acceptance::new(target).with_losses(losses).run(vec![source]));
    let _rules = script.offer(&[full("rules", &["r"])]).await;
    let _handlers = script.offer(&[full("handlers", &["h"])]).await;
    next(&mut offers).await.accept();
    (offers, script)
}

fn is_lost(decision: Option<Decision>) -> bool {
    matches!(decision, Some(Decision::Refused(faults)) if faults[0].reason.contains("has no resources any more"))
}

#[tokio::test(start_paused = true)]
async fn a_source_that_loses_everything_at_once_changes_nothing_until_it_has_something_again() {
    let (mut offers, script) = protected().await;
    let mut lost = script.offer(&[full("rules", &[]), full("handlers", &[])]).await;
    assert!(is_lost(decision(&mut lost).await));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(offers.try_recv().is_err());
    let back = [full("rules", &["r"]), full("handlers", &[])];
    let _decisions = script.offer(&back).await;
    assert_eq!(content(&next(&mut offers).await).1, back);
}

#[tokio::test(start_paused = true)]
async fn collections_that_become_empty_one_after_another_are_answered_at_once_and_not_applied() {
    let (mut offers, script) = protected().await;
    let mut rules = script.offer(&[full("rules", &[])]).await;
    assert_eq!(decision(&mut rules).await, Some(Decision::Pending));
    let mut handlers = script.offer(&[full("handlers", &[])]).await;
    assert!(is_lost(decision(&mut handlers).await));
    assert!(is_lost(decision(&mut rules).await));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(offers.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn rules_that_are_removed_while_other_resources_stay_are_applied_after_the_delay() {
    let (mut offers, script) = protected().await;
    let mut rules = script.offer(&[full("rules", &[])]).await;
    assert_eq!(decision(&mut rules).await, Some(Decision::Pending));
    tokio::time::sleep(Duration::from_secs(9)).await;
    assert!(offers.try_recv().is_err());
    let offer = next(&mut offers).await;
    assert_eq!(content(&offer).1, [full("rules", &[])]);
    offer.accept();
    assert_eq!(decision(&mut rules).await, Some(Decision::Live));
}

#[tokio::test(start_paused = true)]
async fn rules_that_come_back_within_the_delay_are_applied_at_once() {
    let (mut offers, script) = protected().await;
    let _rules = script.offer(&[full("rules", &[])]).await;
    let _more = script.offer(&[full("rules", &["s"])]).await;
    assert_eq!(content(&next(&mut offers).await).1, [full("rules", &["s"])]);
}

#[tokio::test(start_paused = true)]
async fn an_update_of_everything_may_remove_the_rules_at_once() {
    let (mut offers, script) = protected().await;
    let without_rules = [full("rules", &[]), full("handlers", &["h"])];
    let _decisions = script.offer(&without_rules).await;
    assert_eq!(content(&next(&mut offers).await).1, without_rules);
}

/// A source that offers its newest state when it changes.
struct Latest {
    state: watch::Receiver<Vec<String>>,
    collection: &'static str,
}

impl Source for Latest {
    fn name(&self) -> String {
        self.collection.to_owned()
    }

    fn run(mut self: Box<Self>, mut offers: Offers) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move {
            loop {
                let names = self.state.borrow_and_update().clone();
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                let changes = vec![full(self.collection, &names)];
                let update = Update { source: self.collection.into(), changes, faults: Vec::new() };
                let Some(mut decisions) = offers.offer(update).await else { return };
                decisions.next().await;
                if self.state.changed().await.is_err() {
                    return;
                }
            }
        })
    }
}

/// The names in a collection, where an update has it.
fn names_in(update: &Update, short: &str) -> Option<BTreeSet<String>> {
    let of = collection(short);
    let change = update.changes.iter().find(|change| change.collection == of)?;
    Some(change.content.resources().map(|resource| resource.name.name().to_owned()).collect())
}

/// The collections in use, each with the names in it.
type InUse = [BTreeSet<String>; 3];

const COLLECTIONS: [&str; 3] = ["handlers", "instances", "rules"];

/// Accepts rules only with the handlers and instances that are named like them, and these only with rules.
struct Checked(watch::Sender<InUse>);

impl Apply for Checked {
    async fn apply(&mut self, update: Update) -> Verdict {
        let mut next = self.0.borrow().clone();
        for (names, short) in next.iter_mut().zip(COLLECTIONS) {
            if let Some(new) = names_in(&update, short) {
                *names = new;
            }
        }
        if next[0] != next[2] || next[1] != next[2] {
            return Err(fault());
        }
        self.0.send_replace(next);
        Ok(())
    }
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(128))]

    /// Sources change in any order, at once or one after the other: once all of them are valid together, their
    /// resources are live.
    #[test]
    fn what_sources_hold_comes_into_use_when_it_is_valid(
        steps in proptest::collection::vec((0..3_usize, 0u8..8, 0u64..3), 0..12),
        last in 0u8..8,
        order in proptest::sample::select(vec![[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]]),
    ) {
        let names = |bits: u8| -> Vec<String> {
            (0..3).filter(|bit| bits >> bit & 1 == 1).map(|bit| format!("n{bit}")).collect()
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let (states, sources): (Vec<_>, Vec<MergedSource>) = COLLECTIONS
                .into_iter()
                .map(|short| {
                    let (sender, state) = watch::channel(Vec::new());
                    let required = BTreeSet::from([collection(short)]);
                    let source = Latest { state, collection: short };
                    (sender, MergedSource { filter: only(short), required, ..source.into() })
                })
                .unzip();
            let (applied, mut in_use) = watch::channel(Default::default());
            tokio::spawn(Acceptance::new(Checked(applied)).run(sources));
            let pause = async |times: u64| {
                // A paused clock moves on when every task waits.
                tokio::time::sleep(Duration::from_millis(times)).await;
            };
            for (collection, bits, times) in steps {
                states[collection].send_replace(names(bits));
                pause(times).await;
            }
            for collection in order {
                states[collection].send_replace(names(last));
                pause(1).await;
            }
            let expected: InUse = std::array::from_fn(|_| names(last).into_iter().collect());
            let converged = tokio::time::timeout(Duration::from_secs(5), in_use.wait_for(|in_use| *in_use == expected)).await;
            assert!(converged.is_ok(), "what the sources hold is not in use");
        });
    }
}

/// Refuses resources named `bad`, and rules without the handler of their name. The faults name them.
struct Referring {
    in_use: InUse,
    applied: watch::Sender<Vec<(InUse, bool)>>,
}

impl Apply for Referring {
    async fn apply(&mut self, update: Update) -> Verdict {
        let mut next = self.in_use.clone();
        let mut is_whole = true;
        for (names, short) in next.iter_mut().zip(COLLECTIONS) {
            match names_in(&update, short) {
                Some(new) => *names = new,
                None => is_whole = false,
            }
        }
        let is_faulty =
            |short: &str, name: &String| name == "bad" || short == "rules" && !next[0].contains(name);
        let faulty = COLLECTIONS
            .iter()
            .zip(&next)
            .flat_map(|(short, names)| names.iter().filter(|name| is_faulty(short, name)));
        let faults: Vec<_> = faulty
            .map(|name| {
                ValidationError::error("faulty").of(ResourceName::new(name.as_str(), Kind::Rule, "ns"))
            })
            .collect();
        if !faults.is_empty() {
            return Err(faults);
        }
        self.in_use = next;
        self.applied.send_modify(|applied| applied.push((self.in_use.clone(), is_whole)));
        Ok(())
    }
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(256))]

    /// Whatever arrives first, in any order and at any time: nothing is in use before every collection is without a fault, nothing
    /// refers to what is not there, and valid collections come into use.
    #[test]
    fn nothing_is_in_use_before_everything_is_valid(
        steps in proptest::collection::vec((0..3_usize, 0u8..8, proptest::bool::ANY, 0u64..3000), 0..12),
        last in 0u8..8,
        order in proptest::sample::select(vec![[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]]),
        times in 0u64..3000,
    ) {
        let names = |bits: u8, bad: bool| -> Vec<String> {
            let good = (0..3).filter(|bit| bits >> bit & 1 == 1).map(|bit| format!("n{bit}"));
            good.chain(bad.then(|| "bad".to_owned())).collect()
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let applied = runtime.block_on(async {
            let (states, sources): (Vec<_>, Vec<MergedSource>) = COLLECTIONS
                .into_iter()
                .map(|short| {
                    let (sender, state) = watch::channel(vec!["bad".to_owned()]);
                    let required = BTreeSet::from([collection(short)]);
                    let source = Latest { state, collection: short };
                    (sender, MergedSource { filter: only(short), required, ..source.into() })
                })
                .unzip();
            let (applied, mut seen) = watch::channel(Vec::new());
            tokio::spawn(Acceptance::new(Referring { in_use: Default::default(), applied }).run(sources));
            for (collection, bits, bad, pause) in steps {
                states[collection].send_replace(names(bits, bad));
                tokio::time::sleep(Duration::from_millis(pause)).await;
            }
            for collection in order {
                states[collection].send_replace(names(last, false));
                tokio::time::sleep(Duration::from_millis(times)).await;
            }
            let expected: InUse = std::array::from_fn(|_| names(last, false).into_iter().collect());
            let is_last = |applied: &Vec<(InUse, bool)>| applied.last().is_some_and(|(in_use, _)| *in_use == expected);
            let converged = tokio::time::timeout(Duration::from_secs(5), seen.wait_for(is_last)).await;
            converged.expect("what the sources hold comes into use").unwrap().clone()
        });
        assert!(applied[0].1, "the first configuration lacks a collection: {applied:?}");
    }
}

/// A source whose connection the test opens and closes.
#[derive(Debug)]
struct Connection(watch::Receiver<Option<Instant>>);

impl SourceHandle for Connection {
    fn status(&self) -> futures_util::future::BoxFuture<'_, Option<crate::source::SourceStatus>> {
        Box::pin(std::future::ready(None))
    }

    fn connected_for(&self) -> Option<Duration> {
        self.0.borrow().map(|since| since.elapsed())
    }
}

struct Connected(Scripted, watch::Receiver<Option<Instant>>);

impl Source for Connected {
    fn name(&self) -> String {
        self.0.name()
    }

    fn handle(&self) -> Option<Arc<dyn SourceHandle>> {
        Some(Arc::new(Connection(self.1.clone())))
    }

    fn run(self: Box<Self>, offers: Offers) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::new(self.0).run(offers)
    }
}

#[tokio::test(start_paused = true)]
async fn rules_are_not_removed_while_their_source_is_disconnected() {
    let (sender, changes) = mpsc::channel(1);
    let (connection, connected) = watch::channel(Some(Instant::now()));
    let source = Connected(Scripted { name: "s", changes }, connected);
    let script = Script { changes: sender };
    let (target, mut offers) = mpsc::channel(1);
    let delay = Duration::from_secs(10);
    tokio::spawn(Acceptance::new(target).with_losses(LossPolicy::Protect { delay }).run(vec![source.into()]));
    let _first = script.offer(&[full("handlers", &["h"]), full("rules", &["r"])]).await;
    next(&mut offers).await.accept();
    let _removal = script.offer(&[full("rules", &[])]).await;
    connection.send_replace(None);
    tokio::time::sleep(10 * delay).await;
    assert!(offers.try_recv().is_err(), "the source cannot send the rules again");
    for pause in [1, 3, 7] {
        connection.send_replace(Some(Instant::now()));
        tokio::time::sleep(Duration::from_secs(pause)).await;
        connection.send_replace(None);
        tokio::time::sleep(Duration::from_millis(9_900)).await;
        assert!(offers.try_recv().is_err(), "it was connected for {pause} s");
    }
    let connected = Instant::now();
    connection.send_replace(Some(connected));
    let offer = tokio::time::timeout(2 * delay, offers.recv()).await.unwrap().unwrap();
    assert!(connected.elapsed() >= delay, "it has the whole time again: {:?}", connected.elapsed());
    assert_eq!(names_in(offer.content(), "rules"), Some(BTreeSet::new()));
}
