//! The adapter under test in this process, and the rules that need it there.

use std::{
    cell::Cell,
    collections::BTreeMap,
    fmt,
    future::ready,
    io,
    sync::{Arc, OnceLock},
    thread,
    time::Duration,
};

use anyhow::{Context as _, anyhow, bail};
use futures_util::future::join_all;
use prost::bytes::Bytes;
use tokio::{
    runtime::{Builder, Handle},
    sync::{mpsc, oneshot},
    task::yield_now,
    time::{Instant, sleep, timeout},
};
use tokio_util::task::AbortOnDropHandle;
use tonic::Code;

use super::{
    common::{
        self, Answer, Asked, FIRST, Failure, FailureKind, Options, Subject, With, call, read_yaml,
        still_answers,
    },
    observed::{Fault, Observer},
    run::{Outcome, Run, Tested},
    survey::{Case, Survey, survey},
    usage,
};
use mixer_adapter_core::{
    framework::{
        dynamic::{DescriptorSet, DynamicTemplate},
        frame::FRAME_PREFIX,
        json::{JsonError, read_params},
    },
    proto::Any,
};
use mixer_adapter_host::{
    AccessPolicy, Host, NewSession,
    handler::{
        AdapterInfo, Adapters, AdaptersBuilder, CallError, Caller, Closing, TableLimits, TemplateInfo,
    },
};

/// The adapter under test without its type.
pub(super) struct Suite<'a> {
    pub(super) adapter: &'static str,
    /// Whether it declares that it blocks threads.
    pub(super) blocking: bool,
    pub(super) options: &'a Options,
    /// Its templates, which are read from their descriptors once.
    pub(super) templates: OnceLock<Vec<DynamicTemplate>>,
    pub(super) add: &'a (dyn Fn(Arc<Observer>, AdaptersBuilder) -> AdaptersBuilder + Sync),
}

/// The adapter in a host of its own, so that rules do not affect each other.
///
/// It runs on a current-thread runtime, as in a server, and on another thread than the suite, which it may block.
pub(super) struct Process<'a> {
    pub(super) host: Arc<Host>,
    pub(super) runtime: Handle,
    info: Arc<AdapterInfo>,
    observer: Arc<Observer>,
    suite: &'a Suite<'a>,
    /// Ends the runtime when it is dropped.
    _end: oneshot::Sender<()>,
}

/// Tests all rules in their order.
pub(super) async fn test(suite: &Suite<'_>, mut run: Run<'_>) -> Vec<Tested> {
    run.essential("descriptors", async { descriptors(suite) }).await;
    run.essential("takes-its-configuration", takes_its_configuration(suite)).await;
    let mut surveys = Vec::new();
    let share = run.share();
    run.essential("threads-are-not-blocked", threads_are_not_blocked(suite, share, &mut surveys)).await;
    let surveys = &surveys[..];
    run.rule("refusals-name-the-field", refusals_name_the_field(suite)).await;
    run.rule("sessions-are-counted", sessions_are_counted(suite)).await;
    run.rule("unknown-session", async { common::unknown_session(&Process::new(suite)?).await }).await;
    run.rule("every-instance-is-answered", async { common::every_instance_is_answered(surveys) }).await;
    run.rule("denials-are-answers", async { common::denials_are_answers(surveys) }).await;
    let again = async { survey(&Process::new(suite)?, share).await };
    run.rule("answers-hold", common::answers_hold(surveys, again)).await;
    run.rule("checks-have-an-opinion", async { common::checks_have_an_opinion(surveys) }).await;
    run.rule("quota-grants", async { common::quota_grants(surveys) }).await;
    run.rule("cancelled-calls-leave-nothing", async {
        common::cancelled_calls_leave_nothing(&Process::new(suite)?, surveys).await
    })
    .await;
    run.rule("handlers-close", handlers_close(suite)).await;
    run.alone("handlers-release-everything", usage::handlers_release_everything(suite, share)).await;
    run.rule("panics-are-contained", panics_are_contained(suite, surveys)).await;
    run.rule("deadlines-are-honoured", deadlines_are_honoured(suite, surveys)).await;
    run.rule("calls-are-counted", calls_are_counted(suite)).await;
    run.finish()
}

impl<'a> Process<'a> {
    /// Hosts the suite's adapter.
    pub(super) fn new(suite: &'a Suite<'a>) -> anyhow::Result<Self> {
        let (runtime, end) = start_runtime().context("cannot start the runtime")?;
        let observer = Arc::new(Observer::default());
        let adapters = (suite.add)(observer.clone(), Adapters::builder(runtime.clone())).build()?;
        let info = adapters.find(suite.adapter).cloned().context("the adapter is not found by its name")?;
        let host = Host::new(adapters, TableLimits::default(), Closing::on(runtime.clone()));
        let host = Arc::new(host.with_access(AccessPolicy::unrestricted()));
        Ok(Self { host, runtime, info, observer, suite, _end: end })
    }

    /// Runs a future on the adapter's runtime, a second longer than the suite's patience. Returns `None` if it does not end.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let limit = self.suite.options.patience.saturating_add(Duration::from_secs(1));
        let task = AbortOnDropHandle::new(self.runtime.spawn(work));
        timeout(limit, task).await.ok()?.ok()
    }

    /// Runs a future on the adapter's runtime that ends within the suite's patience unless something blocks its thread.
    async fn answer<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, CallError>> + Send + 'static,
    ) -> Result<T, Failure> {
        match self.run(work).await {
            Some(answer) => answer.map_err(Failure::from),
            None => Err(self.silence().await),
        }
    }

    /// Returns why there is no answer.
    async fn silence(&self) -> Failure {
        let is_alive = timeout(Duration::from_secs(1), self.runtime.spawn(ready(()))).await.is_ok();
        let kind = if is_alive { FailureKind::Silent } else { FailureKind::Blocked };
        Failure::new(kind, Code::DeadlineExceeded, "no answer")
    }

    /// Returns the longest time between two awaits since the last time.
    fn longest(&self) -> Duration {
        self.observer.restart(None).longest
    }

    /// Calls at once, with a fault at an await and a deadline. Returns the number of calls with the fault, and all answers; none if the
    /// calls do not end.
    async fn interrupt(
        &self,
        template: &DynamicTemplate,
        request: &Bytes,
        (fault, at): (Fault, usize),
        calls: usize,
        limit: Duration,
    ) -> (usize, Vec<Result<Bytes, CallError>>) {
        self.observer.restart(Some((fault, at)));
        let (host, method) = (self.host.clone(), template.method().to_owned());
        let requests = vec![request.clone(); calls];
        let caller = Caller { deadline: Instant::now().checked_add(limit), ..caller() };
        let answers = self.run(async move {
            join_all(requests.into_iter().map(|request| host.call(&method, request, caller.clone()))).await
        });
        let answers = answers.await.unwrap_or_default();
        (self.observer.restart(None).faulty, answers.into_iter().flatten().collect())
    }

    /// Closes all handlers and returns how many are still open at the suite's limit.
    async fn close(&self) -> usize {
        let (host, patience) = (self.host.clone(), self.suite.options.patience);
        self.run(async move { host.close(patience).await }).await.unwrap_or(1)
    }

    /// Expects that all handlers close in time and without a panic.
    async fn closed(&self) -> Outcome {
        let before = self.info.panics();
        match (self.close().await, self.info.panics() - before) {
            (0, 0) => Ok(()),
            (0, panics) => bail!("{panics} panics while handlers closed"),
            (open, _) => bail!("{open} handlers are not closed after {:?}", self.suite.options.patience),
        }
    }

    fn required_config(&self) -> anyhow::Result<Any> {
        Ok(self.read(self.suite.options.config.as_deref().unwrap_or("{}"))?)
    }
}

fn caller() -> Caller {
    Caller { connection: 1, ..Caller::default() }
}

/// Starts a current-thread runtime on a thread of its own, which ends when the sender is dropped.
fn start_runtime() -> io::Result<(Handle, oneshot::Sender<()>)> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let (handle, (end, ended)) = (runtime.handle().clone(), oneshot::channel::<()>());
    thread::Builder::new().name("compliance".to_owned()).spawn(move || {
        let _ = runtime.block_on(ended);
        // A thread that is blocked must not block the end of the test.
        runtime.shutdown_background();
    })?;
    Ok((handle, end))
}

impl Subject for Process<'_> {
    fn options(&self) -> &Options {
        self.suite.options
    }

    fn templates(&self) -> &[DynamicTemplate] {
        self.suite.templates.get().map(Vec::as_slice).unwrap_or_default()
    }

    fn read(&self, text: &str) -> Result<Any, JsonError> {
        let value = read_params(&self.info.config, read_yaml(text)?)?;
        let type_url = format!("type.googleapis.com/{}", self.info.config.full_name());
        Ok(Any { type_url, value })
    }

    fn config(&self) -> Result<Option<Any>, JsonError> {
        self.read(self.suite.options.config.as_deref().unwrap_or("{}")).map(Some)
    }

    async fn create_session(&self, config: Option<&Any>) -> Result<String, Failure> {
        let new = NewSession { adapter_config: config.cloned(), inferred_types: BTreeMap::new() };
        let host = self.host.clone();
        let created = self.answer(async move { host.create_session(new, &caller()).await });
        Ok(created.await?.to_string())
    }

    async fn close_session(&self, id: &str) -> Result<(), Failure> {
        Ok(self.host.close_session(id, &caller())?)
    }

    async fn send(&self, template: &DynamicTemplate, request: Bytes) -> Result<Answer, Failure> {
        let (host, method) = (self.host.clone(), template.method().to_owned());
        let patience = self.suite.options.patience;
        let response = self.answer(async move { call_host(&host, &method, request, patience).await }).await?;
        decode(template, Ok(response))
    }

    async fn cancel(&self, template: &DynamicTemplate, request: Bytes, at: usize) -> usize {
        // A blocking adapter has 64 threads.
        let calls = if self.suite.blocking { 64 } else { 256 };
        let limit = self.suite.options.patience;
        self.interrupt(template, &request, (Fault::Cancel, at), calls, limit).await.0
    }

    async fn send_all(
        &self,
        template: &DynamicTemplate,
        requests: Vec<Bytes>,
        repeats: usize,
        end: Instant,
    ) -> Vec<Asked> {
        // The calls do not wait for this thread, and this one waits for none that blocks.
        let (sender, mut answers) = mpsc::channel(128);
        let (host, observer) = (self.host.clone(), self.observer.clone());
        let (method, patience) = (template.method().to_owned(), self.suite.options.patience);
        let _calls = AbortOnDropHandle::new(self.runtime.spawn(async move {
            for (index, request) in requests.into_iter().enumerate() {
                if index >= FIRST && Instant::now() >= end {
                    break;
                }
                observer.restart(None);
                let mut answers = Vec::new();
                while answers.len() < repeats && (answers.is_empty() || Instant::now() < end) {
                    let answer = call_host(&host, &method, request.clone(), patience).await;
                    let is_failed = answer.is_err();
                    answers.push((answer, Instant::now()));
                    if is_failed {
                        break;
                    }
                }
                if sender.send((answers, observer.restart(None))).await.is_err() {
                    break;
                }
                // Calls that do not wait would leave no time to other tasks.
                yield_now().await;
            }
        }));
        let mut asked = Vec::new();
        let limit = patience.saturating_mul(4).saturating_add(Duration::from_secs(1));
        loop {
            let (answers, observed) = match timeout(limit, answers.recv()).await {
                Ok(Some(answers)) => answers,
                Ok(None) => return asked,
                Err(_) => {
                    let answers = vec![(Err(self.silence().await), Instant::now())];
                    asked.push(Asked { answers, awaits: 0, longest: Duration::ZERO });
                    return asked;
                }
            };
            let answers = answers.into_iter().map(|(answer, time)| (decode(template, answer), time));
            let (awaits, longest) = (observed.awaits, observed.longest);
            asked.push(Asked { answers: answers.collect(), awaits, longest });
        }
    }
}

/// Calls with the suite's patience as the deadline.
async fn call_host(
    host: &Host,
    method: &str,
    request: Bytes,
    patience: Duration,
) -> Result<Bytes, CallError> {
    let caller = Caller { deadline: Instant::now().checked_add(patience), ..caller() };
    match host.call(method, request, caller).await {
        Some(answer) => answer,
        // The descriptor has the same method as the adapter.
        None => unreachable!("{method} is not served"),
    }
}

fn decode(template: &DynamicTemplate, answer: Result<Bytes, CallError>) -> Result<Answer, Failure> {
    Answer::decode(template, answer?.get(FRAME_PREFIX..).unwrap_or_default())
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        let (code, message) = (Code::from(error.code() as i32), error.to_string());
        match error {
            CallError::Panicked { message, .. } => Self::new(FailureKind::Panicked, code, message),
            CallError::DeadlineExceeded { .. } => Self::new(FailureKind::Silent, code, message),
            CallError::Refused { source, .. } => {
                let fields = source.violations().iter().map(|violation| violation.field.clone());
                Self { fields: Some(fields.collect()), ..Self::new(FailureKind::Refused, code, message) }
            }
            _ => Self::new(FailureKind::Failed, code, message),
        }
    }
}

fn descriptors(suite: &Suite<'_>) -> Outcome {
    let subject = Process::new(suite)?;
    let templates = subject.info.templates.iter().map(|template| {
        let read = DescriptorSet::decode(template.descriptor).and_then(|set| DynamicTemplate::new(&set));
        let read = read.map_err(|error| anyhow!("the descriptor of `{}`: {error}", template.name))?;
        let described = (read.name(), read.variety(), read.method());
        if described != (template.name, template.variety, template.method) {
            let TemplateInfo { name, variety, method, .. } = template;
            bail!("`{name}` is {variety} at {method}, its descriptor has {described:?}");
        }
        Ok(read)
    });
    let _ = suite.templates.set(templates.collect::<anyhow::Result<_>>()?);
    match subject.info.config.name() {
        "Params" => Ok(()),
        other => bail!("the configuration message is `{other}`; a real Mixer requires `Params`"),
    }
}

async fn takes_its_configuration(suite: &Suite<'_>) -> Outcome {
    let subject = Process::new(suite)?;
    let text = suite.options.config.as_deref().unwrap_or("{}");
    let refused = |reason: &dyn fmt::Display| {
        anyhow!("{text} is rejected: {reason}; set `config(..)` to one that it accepts")
    };
    let config = subject.required_config().map_err(|error| refused(&error))?;
    let new = NewSession { adapter_config: Some(config.clone()), ..NewSession::default() };
    let host = subject.host.clone();
    let validated = subject.answer(async move { host.validate(new, &caller()).await });
    validated.await.map_err(|error| refused(&error))?;
    subject.create_session(Some(&config)).await.map_err(|error| refused(&error))?;
    subject.close().await;
    Ok(())
}

async fn refusals_name_the_field(suite: &Suite<'_>) -> Outcome {
    let subject = Process::new(suite)?;
    match subject.read(r#"{"no_such_field_in_any_adapter": 1}"#) {
        Err(error) if error.field == "no_such_field_in_any_adapter" => {}
        other => bail!("an unknown field is accepted as {other:?}"),
    }
    common::refusals_name_the_field(&subject).await?;
    match subject.close().await {
        0 if subject.host.handlers().live_count() == 0 => Ok(()),
        open => bail!("{open} handlers are open although their configuration was rejected"),
    }
}

async fn sessions_are_counted(suite: &Suite<'_>) -> Outcome {
    let subject = Process::new(suite)?;
    let config = subject.required_config()?;
    let create = async || subject.create_session(Some(&config)).await.map_err(|error| anyhow!("{error}"));
    let (id, again) = (create().await?, create().await?);
    if id != again {
        bail!("one configuration has two sessions, {id} and {again}: its encoding may be ambiguous");
    }
    let close = async || subject.close_session(&id).await.map_err(|error| anyhow!("{error}"));
    let live = |expected: usize, when: &str| match subject.host.handlers().live_count() {
        live if live == expected => Ok(()),
        live => bail!("{live} handlers are open {when}, not {expected}"),
    };
    live(1, "with two sessions of one configuration")?;
    close().await?;
    live(1, "with one session left")?;
    for template in subject.templates() {
        if let Err(failure) = call(&subject, template, With::Session(&id)).await
            && failure.message.starts_with("session `")
        {
            bail!("a session ends before its last CloseSession");
        }
    }
    close().await?;
    live(0, "after the last session was closed")?;
    subject.closed().await
}

/// The longest time between two awaits that is not blocking.
const BLOCKING: Duration = Duration::from_millis(25);

/// The longest time that tasks in the background may delay others, which also have to wait for a processor.
const STALLED: Duration = Duration::from_millis(250);

/// Surveys the adapter, and expects that it blocks its thread neither in calls nor in `close` nor by tasks in the background.
async fn threads_are_not_blocked(suite: &Suite<'_>, share: Duration, surveys: &mut Vec<Survey>) -> Outcome {
    let subject = Process::new(suite)?;
    let (surveyed, mut stall) = stalled(&subject, survey(&subject, share)).await;
    *surveys = surveyed?;
    let mut close = blocked_closing(&subject).await;
    for Survey { template, cases } in surveys.iter().filter(|_| !suite.blocking) {
        for case in cases {
            if let Some(blocked) = blocked(suite, template, case).await? {
                bail!("`{}` blocks its thread for {blocked} for {case}", template.name());
            }
        }
    }
    for _ in 0..2 {
        if stall < STALLED && (close < BLOCKING || suite.blocking) {
            return Ok(());
        }
        // A machine that is busy can delay a thread, too, but not each time.
        let subject = Process::new(suite)?;
        let config = subject.required_config()?;
        let opened = async {
            let _ = subject.create_session(Some(&config)).await;
            sleep(STALLED).await;
        };
        stall = stall.min(stalled(&subject, opened).await.1);
        close = close.min(blocked_closing(&subject).await);
    }
    if stall >= STALLED {
        bail!("tasks in the background block the thread for {stall:.0?}");
    }
    if close >= BLOCKING && !suite.blocking {
        bail!("`close` blocks its thread for {close:.0?}");
    }
    Ok(())
}

/// Closes all handlers, and returns how long one of them blocks its thread.
async fn blocked_closing(subject: &Process<'_>) -> Duration {
    let _ = subject.longest();
    subject.close().await;
    subject.longest()
}

/// Repeats a call that took long between two awaits. Returns how long it blocks its thread.
async fn blocked(
    suite: &Suite<'_>,
    template: &DynamicTemplate,
    case: &Case,
) -> anyhow::Result<Option<String>> {
    if case.is_blocked() {
        return Ok(Some(format!("more than {:?}", suite.options.patience)));
    }
    let mut shortest = case.longest;
    let subject = Process::new(suite)?;
    let start = Instant::now();
    for _ in 0..4 {
        if shortest < BLOCKING {
            return Ok(None);
        }
        if start.elapsed() > STALLED * 4 {
            break;
        }
        // It may be the first call that is slow, or a machine that is busy.
        let _ = subject.longest();
        let _ = subject.send(template, case.request.clone()).await;
        shortest = shortest.min(subject.longest());
    }
    Ok((shortest >= BLOCKING).then(|| format!("{shortest:.0?}")))
}

/// Measures how long the adapter's runtime delays a task while `work` runs and once after it, beyond the delays of this thread.
async fn stalled<T>(subject: &Process<'_>, work: impl Future<Output = T>) -> (T, Duration) {
    let (longest, own) = (Cell::new(Duration::ZERO), Cell::new(Duration::ZERO));
    let ping = async || {
        let start = Instant::now();
        subject.run(ready(())).await;
        longest.set(longest.get().max(start.elapsed()));
    };
    let pings = async {
        loop {
            ping().await;
            let pause = Duration::from_millis(20);
            let start = Instant::now();
            sleep(pause).await;
            own.set(own.get().max(start.elapsed().saturating_sub(pause)));
        }
    };
    let output = tokio::select! {
        output = work => output,
        () = pings => unreachable!("pings do not end"),
    };
    ping().await;
    (output, longest.get().saturating_sub(own.get() * 4))
}

async fn handlers_close(suite: &Suite<'_>) -> Outcome {
    let subject = Process::new(suite)?;
    let config = subject.required_config()?;
    let open = async |subject: &Process<'_>| {
        let created = subject.create_session(Some(&config)).await;
        created.map_err(|error| anyhow!("it does not open again: {error}"))
    };
    open(&subject).await?;
    for template in subject.templates() {
        // Other rules test the answer.
        let _ = call(&subject, template, With::Config(Some(&config))).await;
    }
    subject.closed().await?;
    // It must open again, without state of the first time.
    let again = Process::new(suite)?;
    open(&again).await?;
    again.closed().await
}

/// The number of awaits at which calls panic or hang.
const FAULTS: usize = 4;

async fn panics_are_contained(suite: &Suite<'_>, surveys: &[Survey]) -> Outcome {
    let subject = Process::new(suite)?;
    let mut expected = 0;
    for survey in surveys {
        let template = &survey.template;
        let Some(case) = survey.most_suspended() else { continue };
        for at in 0..=case.awaits.min(FAULTS) {
            let patience = suite.options.patience;
            let (faulty, answers) =
                subject.interrupt(template, &case.request, (Fault::Panic, at), 2, patience).await;
            expected += faulty as u64;
            let contained = answers.iter().filter_map(|answer| answer.as_ref().err());
            let contained = contained.filter(|error| matches!(error, CallError::Panicked { .. })).count();
            if contained != faulty {
                bail!("{contained} of {faulty} panics at await {at} of `{}` are contained", template.name());
            }
            still_answers(&subject, template, case)
                .await
                .map_err(|error| anyhow!("after a panic at await {at} `{}` {error}", template.name()))?;
        }
    }
    let panics = subject.info.panics();
    if panics != expected {
        bail!("{panics} panics are counted of {expected}");
    }
    if subject.close().await > 0 {
        bail!("a handler does not close after a panic");
    }
    Ok(())
}

/// A deadline that allows a call to reach the handler.
const DEADLINE: Duration = Duration::from_millis(50);

async fn deadlines_are_honoured(suite: &Suite<'_>, surveys: &[Survey]) -> Outcome {
    let subject = Process::new(suite)?;
    // Opens the handler first, so that the time of opening does not count.
    let config = subject.required_config()?;
    subject.create_session(Some(&config)).await.map_err(|error| anyhow!("{error}"))?;
    for survey in surveys {
        let template = &survey.template;
        let Some(case) = survey.most_suspended() else { continue };
        for at in 0..=case.awaits.min(FAULTS) {
            let (faulty, answers) =
                subject.interrupt(template, &case.request, (Fault::Hang, at), 1, DEADLINE).await;
            match &answers[..] {
                [Err(CallError::DeadlineExceeded { .. })] => {}
                [_] if faulty == 0 => {}
                [other] => bail!("`{}` answers {other:?} after its deadline", template.name()),
                _ => bail!("`{}` does not end at its deadline", template.name()),
            }
            still_answers(&subject, template, case)
                .await
                .map_err(|error| anyhow!("after a deadline at await {at} `{}` {error}", template.name()))?;
        }
    }
    subject.closed().await.map_err(|error| anyhow!("after a deadline {error}"))
}

async fn calls_are_counted(suite: &Suite<'_>) -> Outcome {
    let subject = Process::new(suite)?;
    let config = subject.config()?;
    for template in subject.templates() {
        let _ = call(&subject, template, With::Config(config.as_ref())).await;
        let method = subject.host.adapters().method(template.method());
        let series = method.map(|method| method.metrics()).unwrap_or_default();
        let counted: u64 = series
            .iter()
            .filter(|(adapter, _)| *adapter == suite.adapter)
            .map(|(_, calls)| (0..=16).map(|code| calls.count(Code::from_i32(code))).sum::<u64>())
            .sum();
        if counted != 1 {
            bail!("one call of `{}` is counted as {counted}", template.name());
        }
    }
    subject.closed().await
}
