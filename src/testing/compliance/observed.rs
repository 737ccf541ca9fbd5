//! The adapter under test with its calls observed, and interrupted at one of their awaits.

use std::{
    future::poll_fn,
    marker::PhantomData,
    pin::pin,
    sync::Arc,
    task::{Context as TaskContext, Poll},
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use mixer_adapter_core::{
    adapter::{Adapter, AdapterError, Code, Context, Handle, Templates},
    framework::TemplateVisitor,
    template::Template,
};

/// What happens to a call at one of its awaits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The call is dropped.
    Cancel,
    /// The call panics.
    Panic,
    /// The call is never woken.
    Hang,
}

/// What calls and `close` did, and the fault of further calls.
#[derive(Debug, Default)]
pub(super) struct Observer(Mutex<Observations>);

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Observations {
    /// The fault, and the number of awaits before it: 0 is before the adapter is called.
    pub(super) fault: Option<(Fault, usize)>,
    /// Calls with the fault.
    pub(super) faulty: usize,
    /// The maximum number of awaits of a call at which it was suspended.
    pub(super) awaits: usize,
    /// The longest time between two awaits, without the time in which the thread waits for a processor.
    pub(super) longest: Duration,
}

impl Observer {
    /// Sets the fault of further calls, and returns the observations so far.
    pub(super) fn restart(&self, fault: Option<(Fault, usize)>) -> Observations {
        std::mem::replace(&mut *self.0.lock(), Observations { fault, ..Observations::default() })
    }

    /// Runs a call, up to its fault.
    async fn call<T>(&self, call: impl Future<Output = Result<T, AdapterError>>) -> Result<T, AdapterError> {
        let mut call = Some(Box::pin(call));
        let (mut awaits, mut is_faulty) = (0, false);
        poll_fn(|context| {
            loop {
                if let Some(fault) = self.fault_at(awaits) {
                    self.0.lock().faulty += usize::from(!std::mem::replace(&mut is_faulty, true));
                    match fault {
                        Fault::Cancel => call = None,
                        // Without the message of a panic on stderr, since the adapter has no defect.
                        Fault::Panic => {
                            std::panic::resume_unwind(Box::new("injected by the compliance suite"))
                        }
                        Fault::Hang => return Poll::Pending,
                    }
                }
                let Some(call) = call.as_mut() else {
                    return Poll::Ready(Err(AdapterError::new(Code::Cancelled, "cancelled")));
                };
                let polled = self.poll(context, |context| call.as_mut().poll(context));
                if polled.is_ready() {
                    return polled;
                }
                awaits += 1;
                self.suspended(awaits);
                if self.fault_at(awaits).is_none() {
                    return Poll::Pending;
                }
            }
        })
        .await
    }

    fn suspended(&self, awaits: usize) {
        let mut observations = self.0.lock();
        observations.awaits = observations.awaits.max(awaits);
    }

    fn fault_at(&self, awaits: usize) -> Option<Fault> {
        self.0.lock().fault.and_then(|(fault, at)| (at == awaits).then_some(fault))
    }

    /// Measures a poll.
    fn poll<T>(
        &self,
        context: &mut TaskContext<'_>,
        poll: impl FnOnce(&mut TaskContext<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let (start, delay) = (Instant::now(), run_queue_delay());
        let polled = poll(context);
        let taken = start.elapsed().saturating_sub(run_queue_delay().saturating_sub(delay));
        let mut observations = self.0.lock();
        observations.longest = observations.longest.max(taken);
        polled
    }
}

/// Returns the time that this thread has waited for a processor, on Linux: a busy machine is not the fault of an adapter.
fn run_queue_delay() -> Duration {
    let statistics = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let delay = statistics.split_whitespace().nth(1).and_then(|nanos| nanos.parse().ok());
    delay.map_or(Duration::ZERO, Duration::from_nanos)
}

/// The state of the program, with the observer of the suite.
pub(super) struct Observed<S> {
    pub(super) state: Arc<S>,
    pub(super) observer: Arc<Observer>,
}

/// A handler whose calls are observed.
pub(super) struct ObservedHandler<A> {
    adapter: A,
    observer: Arc<Observer>,
}

impl<A: Adapter<S>, S: Send + Sync + 'static> Adapter<Observed<S>> for ObservedHandler<A> {
    const NAME: &'static str = A::NAME;
    const DESCRIPTION: &'static str = A::DESCRIPTION;
    const BLOCKING: bool = A::BLOCKING;
    const ANSWERS_FROM_MEMORY: bool = A::ANSWERS_FROM_MEMORY;
    const BYTES_PER_CONFIG_BYTE: usize = A::BYTES_PER_CONFIG_BYTE;
    type Config = A::Config;
    type Templates = Forwarded<A, S>;

    async fn open(config: A::Config, context: Context<Observed<S>>) -> Result<Self, AdapterError> {
        let Observed { state, observer } = &**context.state();
        let adapter = A::open(config, context.with_state(state.clone())).await?;
        Ok(Self { adapter, observer: observer.clone() })
    }

    fn additional_bytes(&self) -> usize {
        self.adapter.additional_bytes()
    }

    async fn close(self) {
        let mut close = pin!(self.adapter.close());
        poll_fn(|context| self.observer.poll(context, |context| close.as_mut().poll(context))).await
    }
}

impl<A: Handle<T>, T: Template> Handle<T> for ObservedHandler<A> {
    async fn handle(&self, call: T::Input) -> Result<T::Answer, AdapterError> {
        self.observer.call(async { self.adapter.handle(call).await }).await
    }
}

/// The templates of the observed adapter.
pub(super) struct Forwarded<A, S>(PhantomData<fn() -> (A, S)>);

impl<A: Adapter<S>, S> Templates<ObservedHandler<A>> for Forwarded<A, S> {
    fn visit(visitor: &mut impl TemplateVisitor<ObservedHandler<A>>) {
        A::Templates::visit(&mut Forward(visitor));
    }
}

struct Forward<'a, V>(&'a mut V);

impl<A, V: TemplateVisitor<ObservedHandler<A>>> TemplateVisitor<A> for Forward<'_, V> {
    fn template<T: Template>(&mut self)
    where
        A: Handle<T>,
    {
        self.0.template::<T>();
    }
}
