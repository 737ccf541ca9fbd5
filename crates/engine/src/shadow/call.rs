//! The evaluation of one call.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use mixer_adapter_host::handler::Caller;
use tokio::{
    runtime::Handle,
    sync::OwnedSemaphorePermit,
    time::{Instant, timeout_at},
};

use super::{
    ShadowDifference, ShadowKind, State,
    verdict::{Outcome, Verdict},
};
use crate::{
    answer::CheckAnswer,
    attribute::Bag,
    decision_log::{CallRecord, DecisionLog, LoggedCall, LoggedDecision},
    dispatch::{AllocationMode, DispatchError, QuotaRequest, Request, RequestAttributes},
    engine::Mixer,
    failed_part::FailedParts,
    limits::{Budget, RequestLimits},
    snapshot::Snapshot,
};

/// The memory of an evaluation besides attributes, in bytes.
const OVERHEAD: usize = 2048;

/// A call to be evaluated in the shadow when its answers are known.
#[derive(Debug)]
pub struct ShadowCall<'m> {
    mixer: &'m Mixer,
    live: Arc<Snapshot>,
    snapshots: Vec<Arc<Snapshot>>,
    answers: Vec<LiveAnswer>,
}

/// An answer that counts.
#[derive(Debug)]
struct LiveAnswer {
    /// `None` for a check.
    quota: Option<LiveQuota>,
    verdict: Verdict,
}

/// A request for a quota.
#[derive(Debug)]
struct LiveQuota {
    name: String,
    dedup_id: String,
    amount: i64,
    best_effort: bool,
    mode: AllocationMode,
}

impl<'m> ShadowCall<'m> {
    /// Begins a call; `None` if nothing is in the shadow, or the call is not in the sample.
    pub fn new(mixer: &'m Mixer, live: &Arc<Snapshot>) -> Option<Self> {
        let configuration = mixer.shadow_configuration();
        let has_shadow = live.shadow.is_some() || configuration.is_some();
        // Nothing is allocated for a call that is not in the sample.
        if !has_shadow || !mixer.shadow().sample.includes_next() {
            return None;
        }
        let configuration = configuration.and_then(|engine| engine.snapshot());
        let snapshots: Vec<_> = live.shadow.iter().cloned().chain(configuration).collect();
        (!snapshots.is_empty()).then(|| Self { mixer, live: live.clone(), snapshots, answers: Vec::new() })
    }

    /// Returns whether attributes are needed that the configuration in use does not read.
    pub fn needs_all_attributes(&self) -> bool {
        self.snapshots.iter().any(|snapshot| snapshot.shadow_kind == Some(ShadowKind::Configuration))
    }

    /// Adds the answer to the check.
    pub fn add_check(&mut self, answer: &Result<CheckAnswer, DispatchError>, failed: &FailedParts) {
        self.answers.push(LiveAnswer { quota: None, verdict: Verdict::of_check(answer, failed.clone()) });
    }

    /// Adds the answer to a quota request: the amount granted, or `None` if it failed.
    pub fn add_quota(
        &mut self,
        quota: QuotaRequest<'_>,
        mode: AllocationMode,
        granted: Option<i64>,
        request: &mut Request<'_>,
    ) {
        let QuotaRequest { name, dedup_id, amount, best_effort } = quota;
        let rules = request.take_refusing();
        let verdict = Verdict::of_quota(granted, amount, String::new(), rules, FailedParts::NONE);
        let (name, dedup_id) = (name.to_owned(), dedup_id.to_owned());
        let quota = Some(LiveQuota { name, dedup_id, amount, best_effort, mode });
        self.answers.push(LiveAnswer { quota, verdict });
    }

    /// Evaluates the call in the background, unless too many wait. Takes the attributes of the request.
    pub fn evaluate(self, request: &mut Request<'_>, caller: &Caller, logged: Option<&LoggedCall<'_>>) {
        let Self { mixer, live, snapshots, answers } = self;
        let shadow = mixer.shadow();
        if answers.is_empty() {
            return;
        }
        let state = &shadow.state;
        let attributes = request.take_attributes();
        let names = answers.iter().filter_map(|answer| answer.quota.as_ref());
        let names: usize = names.map(|quota| quota.name.len() + quota.dedup_id.len()).sum();
        let size = attributes.bag.size() + names + OVERHEAD * (1 + answers.len());
        let runtime = shadow.runtime.clone().or_else(|| Handle::try_current().ok());
        let permits = u32::try_from(size).ok();
        let reserved = permits.and_then(|permits| state.bytes.clone().try_acquire_many_owned(permits).ok());
        let (Some(runtime), Some(reserved)) = (runtime, reserved) else {
            snapshots.iter().for_each(|snapshot| state.count_dropped(snapshot));
            return;
        };
        let now = Instant::now();
        let deadline = now + shadow.timeout;
        // Calls that end earlier have a rule to count them for.
        let calls_end = now + shadow.timeout.mul_f64(0.9);
        let call = Arc::new(Call {
            state: state.clone(),
            log: mixer.decision_log().clone(),
            record: logged.filter(|logged| logged.is_logged()).map(LoggedCall::record),
            live,
            attributes,
            answers,
            deadline,
            limits: *mixer.limits(),
            caller: Caller { deadline: Some(calls_end), memory: None, metadata: None, ..caller.clone() },
            _reserved: reserved,
        });
        for snapshot in snapshots {
            runtime.spawn(call.clone().run(snapshot));
        }
    }
}

impl State {
    fn count_dropped(&self, snapshot: &Snapshot) {
        if let Some(kind) = snapshot.shadow_kind {
            self.counts[kind as usize].dropped.fetch_add(1, Relaxed);
        }
    }
}

/// A call that is evaluated.
struct Call {
    state: Arc<State>,
    log: Arc<DecisionLog>,
    record: Option<CallRecord>,
    live: Arc<Snapshot>,
    attributes: RequestAttributes,
    answers: Vec<LiveAnswer>,
    deadline: Instant,
    limits: RequestLimits,
    caller: Caller,
    _reserved: OwnedSemaphorePermit,
}

impl Call {
    /// Evaluates the call by a snapshot, and compares the answers.
    async fn run(self: Arc<Self>, snapshot: Arc<Snapshot>) {
        let Some(kind) = snapshot.shadow_kind else { return };
        let Ok(Ok(_permit)) = timeout_at(self.deadline, self.state.evaluations.acquire()).await else {
            return self.state.count_dropped(&snapshot);
        };
        let mut answered = 0;
        let evaluation = async {
            let bag = self.bag(kind, &snapshot).await;
            let request = Request::new(&snapshot, bag, &self.caller).with_rules(true);
            let mut request = request.with_budget(self.budget());
            if self.attributes.is_strict {
                request = request.strict();
            }
            for live in &self.answers {
                let verdict = self.evaluate(live, kind, &mut request).await;
                self.compare(kind, live, &verdict);
                answered += 1;
            }
        };
        if timeout_at(self.deadline, evaluation).await.is_err() {
            self.answers[answered..].iter().for_each(|live| self.compare(kind, live, &Verdict::late()));
        }
    }

    fn budget(&self) -> Budget {
        Budget::new(&self.limits, &self.caller)
    }

    /// Returns the attributes for a snapshot. Generators of the snapshot's configuration add theirs.
    async fn bag(&self, kind: ShadowKind, snapshot: &Snapshot) -> Bag {
        let mut bag = snapshot.bag();
        match kind {
            ShadowKind::Configuration => self.attributes.copy_received(&mut bag),
            ShadowKind::Rules => {
                let request = self.attributes.request(&self.live, &self.caller);
                let mut request = request.with_budget(self.budget());
                // Without them, an action fails whose condition or instance needs them.
                let _ = request.generate_once().await;
                bag.copy(&request.take_attributes().bag, |_| true);
            }
        }
        bag
    }

    async fn evaluate(&self, live: &LiveAnswer, kind: ShadowKind, request: &mut Request<'_>) -> Verdict {
        let Some(LiveQuota { name, dedup_id, amount, best_effort, mode }) = &live.quota else {
            let answer = request.answer().await;
            return Verdict::of_check(&answer, request.take_failed());
        };
        let dedup_id = &format!("{}-{dedup_id}", kind.name());
        let quota = QuotaRequest { name, dedup_id, amount: *amount, best_effort: *best_effort };
        let allocation = request.allocate(quota, *mode, |_| {}).await;
        let (granted, failure) = match allocation {
            Ok(allocation) => (Some(allocation.answer.granted), String::new()),
            Err(error) => (None, error.to_string()),
        };
        Verdict::of_quota(granted, *amount, failure, request.take_refusing(), request.take_failed())
    }

    /// Counts and logs the difference between an answer and an evaluation.
    fn compare(&self, kind: ShadowKind, live: &LiveAnswer, shadow: &Verdict) {
        let counts = &self.state.counts[kind as usize];
        let Some(difference) = ShadowDifference::between(kind, live.verdict.outcome, shadow.outcome) else {
            return counts.add(None, &[]);
        };
        let rules = shadow.responsible(&live.verdict);
        counts.add(Some(difference), &rules);
        let Some(record) = &self.record else { return };
        let decision = LoggedDecision::Shadow {
            shadow: kind.name(),
            difference: difference.name(),
            live: live.verdict.outcome.name(),
            quota: live.quota.as_ref().map(|quota| &*quota.name),
            rules: &rules,
            failed: &shadow.failed,
        };
        let status = match shadow.outcome {
            Outcome::Denied(code) => Some((code, &*shadow.message)),
            Outcome::Failed => Some((tonic::Code::Unavailable as i32, &*shadow.message)),
            Outcome::Allowed => None,
        };
        let call = self.log.resume(record.clone());
        // As of answers, only the line of a check has attributes.
        let attributes = live.quota.is_none().then(|| call.attributes(&self.attributes.bag)).flatten();
        call.log(decision, status, self.caller.peer_name(), attributes.as_ref());
    }
}
