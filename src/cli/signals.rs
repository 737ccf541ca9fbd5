use std::time::Duration;

use anyhow::Context as _;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
};
use tokio_util::sync::CancellationToken;

use crate::log_output;
use mixer_adapter_net::OwnThread;

/// How much longer than its grace a shutdown may take before the process exits in the middle of it.
const MARGIN: Duration = Duration::from_millis(600);

/// Exit code after a second signal.
const INTERRUPTED: i32 = 130;

/// Handles signals on another thread until it is dropped.
pub(super) struct Signals {
    /// Is cancelled by the first SIGTERM or Ctrl-C.
    pub(super) stop: CancellationToken,
    /// Changes with each SIGHUP.
    pub(super) reload: watch::Receiver<()>,
    _thread: OwnThread,
}

impl Signals {
    /// Starts the thread. After the first SIGTERM or Ctrl-C the process exits when it is done, but at the latest a moment after
    /// `grace`, even if something hangs; the second signal exits it immediately.
    pub(super) fn handle(grace: Duration) -> anyhow::Result<Self> {
        let thread = OwnThread::start("signals").context("cannot start the thread of signals")?;
        let stop = CancellationToken::new();
        let entered = thread.runtime().enter();
        let mut terminate = signal(SignalKind::terminate()).context("cannot handle SIGTERM")?;
        let mut interrupt = signal(SignalKind::interrupt()).context("cannot handle SIGINT")?;
        let mut hangup = signal(SignalKind::hangup()).context("cannot handle SIGHUP")?;
        drop(entered);
        let (requested, reload) = watch::channel(());
        thread.runtime().spawn(async move {
            while hangup.recv().await.is_some() {
                requested.send_replace(());
            }
        });
        let first = stop.clone();
        thread.runtime().spawn(async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            first.cancel();
            tracing::info!("stopping; a second signal exits immediately");
            tokio::select! {
                _ = terminate.recv() => exit(INTERRUPTED),
                _ = interrupt.recv() => exit(INTERRUPTED),
                () = tokio::time::sleep(grace.saturating_add(MARGIN)) => {}
            }
            tracing::error!("the shutdown takes longer than --grace; exiting without it");
            exit(1);
        });
        Ok(Self { stop, reload, _thread: thread })
    }
}

#[expect(clippy::exit, clippy::disallowed_methods, reason = "what would return from main may be stuck")]
fn exit(code: i32) {
    log_output::flush();
    std::process::exit(code);
}
