//! The adapter under test in this process.

use std::{
    collections::BTreeMap,
    future::ready,
    sync::{Arc, OnceLock},
    time::Duration,
};

use anyhow::{Context as _, bail};
use futures_util::future::join_all;
use prost::bytes::Bytes;
use tokio::{
    runtime::Handle,
    sync::mpsc,
    task::yield_now,
    time::{Instant, timeout},
};
use tokio_util::task::AbortOnDropHandle;
use tonic::Code;

use super::{
    common::{Answer, Asked, Failure, FailureKind, Options, Repeats, Subject, read_yaml, repeated},
    observed::{Fault, Observer},
    run::Outcome,
};
use mixer_adapter_core::{
    framework::{
        dynamic::DynamicTemplate,
        frame::FRAME_PREFIX,
        json::{JsonError, read_params},
    },
    proto::Any,
};
use mixer_adapter_host::{
    AccessPolicy, Host, NewSession,
    handler::{AdapterInfo, Adapters, AdaptersBuilder, CallError, Caller, Closing, TableLimits},
};
use mixer_adapter_net::OwnThread;

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
    pub(super) info: Arc<AdapterInfo>,
    observer: Arc<Observer>,
    suite: &'a Suite<'a>,
    /// Ends the runtime when it is dropped.
    _thread: OwnThread,
}

impl<'a> Process<'a> {
    /// Hosts the suite's adapter.
    pub(super) fn new(suite: &'a Suite<'a>) -> anyhow::Result<Self> {
        let thread = OwnThread::start("compliance").context("cannot start the runtime")?;
        let runtime = thread.runtime().clone();
        let observer = Arc::new(Observer::default());
        let adapters = (suite.add)(observer.clone(), Adapters::builder(runtime.clone())).build()?;
        let info = adapters.find(suite.adapter).cloned().context("the adapter is not found by its name")?;
        let host = Host::new(adapters, TableLimits::default(), Closing::on(runtime.clone()));
        let host = Arc::new(host.with_access(AccessPolicy::unrestricted()));
        Ok(Self { host, runtime, info, observer, suite, _thread: thread })
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
    pub(super) async fn answer<T: Send + 'static>(
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
    pub(super) fn longest(&self) -> Duration {
        self.observer.restart(None).longest
    }

    /// Calls at once, with a fault at an await and a deadline. Returns the number of calls with the fault, and all answers; none if the
    /// calls do not end.
    pub(super) async fn interrupt(
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
    pub(super) async fn close(&self) -> usize {
        let (host, patience) = (self.host.clone(), self.suite.options.patience);
        self.run(async move { host.close(patience).await }).await.unwrap_or(1)
    }

    /// Expects that all handlers close in time and without a panic.
    pub(super) async fn closed(&self) -> Outcome {
        let before = self.info.panics();
        match (self.close().await, self.info.panics() - before) {
            (0, 0) => Ok(()),
            (0, panics) => bail!("{panics} panics while handlers closed"),
            (open, _) => bail!("{open} handlers are not closed after {:?}", self.suite.options.patience),
        }
    }
}

pub(super) fn caller() -> Caller {
    Caller { connection: 1, ..Caller::default() }
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
        Ok(self.host.close_session(id, &caller()).await?)
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

    async fn send_all(&self, template: &DynamicTemplate, requests: Vec<Bytes>, times: Repeats) -> Vec<Asked> {
        // The calls do not wait for this thread, and this one waits for none that blocks.
        let (sender, mut answers) = mpsc::channel(128);
        let (host, observer) = (self.host.clone(), self.observer.clone());
        let (method, patience) = (template.method().to_owned(), self.suite.options.patience);
        let _calls = AbortOnDropHandle::new(self.runtime.spawn(async move {
            for (index, request) in requests.into_iter().enumerate() {
                if times.end_after(index) {
                    break;
                }
                observer.restart(None);
                let answers = repeated(times, || call_host(&host, &method, request.clone(), patience)).await;
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
