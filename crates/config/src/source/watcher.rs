use std::path::Path;

use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::mpsc;

/// Wakes on changes of a file, or in a directory with its subdirectories if `mode` is recursive, until the watcher is dropped;
/// `None` if the path cannot be watched and has to be polled.
pub fn watch_path(path: &Path, mode: RecursiveMode, wake: mpsc::Sender<()>) -> Option<RecommendedWatcher> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // A file may be replaced by another one, and a missing path appears: the directory is watched. Whole trees are polled
    // instead until they exist.
    let is_within = path.is_file() || (mode == RecursiveMode::NonRecursive && !path.is_dir());
    let (watched, mode) = if is_within { (parent, RecursiveMode::NonRecursive) } else { (path, mode) };
    let watching = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        // This program reads files: that changes nothing.
        if !event.is_ok_and(|event| matches!(event.kind, EventKind::Access(_))) {
            // One pending wake-up represents any number of events.
            let _ = wake.try_send(());
        }
    })
    .and_then(|mut watcher| watcher.watch(watched, mode).map(|()| watcher));
    watching
        .inspect_err(
            |error| tracing::debug!(path = %path.display(), %error, "files cannot be watched; polling them"),
        )
        .ok()
}
