use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Returns a token that the first SIGTERM or Ctrl-C cancels; the second signal exits the process.
pub(super) fn stop() -> anyhow::Result<CancellationToken> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot handle SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot handle SIGINT")?;
    let stop = CancellationToken::new();
    let first = stop.clone();
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            if first.is_cancelled() {
                #[expect(
                    clippy::exit,
                    clippy::disallowed_methods,
                    reason = "a second signal asks to stop at once"
                )]
                std::process::exit(130);
            }
            tracing::info!("stopping; a second signal exits immediately");
            first.cancel();
        }
    });
    Ok(stop)
}
