//! Panics of adapters are contained, and panics of the process are logged.

use std::{
    any::Any,
    backtrace::{Backtrace, BacktraceStatus},
    cell::{Cell, RefCell},
    future::poll_fn,
    panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind},
    pin::pin,
    task::Poll,
};

use mixer_adapter_core::framework::{log_limit::LogLimit, log_text::log_text};

use super::AdapterInfo;

/// How tokio panics at `block_in_place` and `block_on` on a thread that serves calls.
const BLOCKED: [&str; 2] = ["can call blocking only when", "from within a runtime"];

/// A contained panic of an adapter.
#[derive(Debug)]
pub(crate) struct PanicError {
    pub(crate) message: String,
    site: Option<PanicSite>,
}

/// Where a panic began, as the hook of [`log_panics`] sees it.
#[derive(Debug)]
struct PanicSite {
    message: String,
    location: String,
    backtrace: Backtrace,
}

thread_local! {
    /// Whether this thread runs code whose panics are contained.
    static IS_CONTAINED: Cell<bool> = const { Cell::new(false) };
    /// The site of the panic that is about to be contained.
    static SITE: RefCell<Option<PanicSite>> = const { RefCell::new(None) };
}

/// Runs code of an adapter, and returns its panic.
pub(crate) fn contain<T>(work: impl FnOnce() -> T) -> Result<T, PanicError> {
    let outer = IS_CONTAINED.replace(true);
    // Left by a panic that the adapter caught itself.
    SITE.take();
    let outcome = catch_unwind(AssertUnwindSafe(work));
    IS_CONTAINED.set(outer);
    outcome.map_err(|panic| {
        let mut message = message(&*panic).to_owned();
        // The first site belongs to an earlier panic, if the adapter caught it.
        let site = SITE.take().filter(|site| site.message == message);
        if BLOCKED.iter().any(|text| message.contains(text)) {
            message.push_str("; an adapter that blocks declares `const BLOCKING: bool = true`");
        }
        PanicError { message, site }
    })
}

/// Awaits a future of an adapter, and returns its panic.
pub(crate) async fn contain_future<F: Future>(future: F) -> Result<F::Output, PanicError> {
    let mut future = pin!(future);
    poll_fn(|context| match contain(|| future.as_mut().poll(context)) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(output)) => Poll::Ready(Ok(output)),
        Err(panic) => Poll::Ready(Err(panic)),
    })
    .await
}

impl PanicError {
    /// Counts and logs the panic of `method` of the adapter.
    pub(crate) fn report(&self, adapter: &AdapterInfo, method: &'static str) {
        adapter.panics.inc();
        if let Some(suppressed) = adapter.panic_log.admit() {
            let site = self.site.as_ref();
            tracing::error!(
                adapter = adapter.name,
                method,
                panic = log_text(&self.message),
                location = site.map(|site| &*site.location),
                backtrace = site.and_then(PanicSite::backtrace),
                suppressed,
                "adapter panicked"
            );
        }
    }
}

impl PanicSite {
    fn of(panic: &PanicHookInfo<'_>) -> Self {
        let message = message(panic.payload()).to_owned();
        let location = panic.location().map(ToString::to_string).unwrap_or_default();
        Self { message, location, backtrace: Backtrace::capture() }
    }

    /// Logs the panic as a panic of the process.
    fn log(&self) {
        static LIMIT: LogLimit = LogLimit::new();
        if let Some(suppressed) = LIMIT.admit() {
            let thread = std::thread::current();
            tracing::error!(
                thread = thread.name(),
                panic = log_text(&self.message),
                location = self.location,
                backtrace = self.backtrace(),
                suppressed,
                "panic"
            );
        }
    }

    /// Returns the backtrace, if `RUST_BACKTRACE` asks for one.
    fn backtrace(&self) -> Option<impl tracing::Value + use<'_>> {
        let is_captured = self.backtrace.status() == BacktraceStatus::Captured;
        is_captured.then(|| tracing::field::display(&self.backtrace))
    }
}

/// Logs the panics of this process by `tracing`, in place of printing them: panics of adapters with the adapter, all others
/// where they begin. Call this once, when a program starts.
///
/// `flush` writes the log after a panic that may end the process.
pub fn log_panics(flush: fn()) {
    std::panic::set_hook(Box::new(move |panic| {
        let site = PanicSite::of(panic);
        if !IS_CONTAINED.get() {
            site.log();
            return flush();
        }
        SITE.with_borrow_mut(|first| match first {
            None => *first = Some(site),
            // A panic while another one unwinds may end the process, before either is contained.
            Some(first) => {
                first.log();
                site.log();
                flush();
            }
        });
    }));
}

/// Returns the message of a panic.
fn message(panic: &(dyn Any + Send)) -> &str {
    if let Some(text) = panic.downcast_ref::<&str>() {
        text
    } else if let Some(text) = panic.downcast_ref::<String>() {
        text
    } else {
        "without a message"
    }
}
