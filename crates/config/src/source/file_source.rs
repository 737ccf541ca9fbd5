use std::{
    fs,
    future::pending,
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use notify::RecursiveMode;
use tokio::{sync::mpsc, task::spawn_blocking, time};

use super::{
    Source,
    file_status::{FileStatus, Offered},
    files::{self, FileFormat},
    parsed_files::ParsedFiles,
    reload_requests::ReloadRequests,
    status::SourceHandle,
    watcher::watch_path,
};
use crate::{
    collection::Collection,
    offer::{Decisions, Offers, Update},
    validation_error::ValidationError,
};

/// The time without changes after which files are read.
const QUIET: Duration = Duration::from_millis(100);
/// The number of attempts to wait for it; files that never stop changing are read then.
const PATIENCE: usize = 20;
/// The delay before a file that cannot be read, and may be incomplete, is read again.
const RETRY: Duration = Duration::from_millis(500);
/// The polling interval where the system cannot report changes.
const POLL: Duration = Duration::from_secs(1);
/// The polling interval where it can: links that lead elsewhere and network file systems are not reported.
const SLOW_POLL: Duration = Duration::from_secs(10);

/// A directory, or one file, of configuration. Offers its whole state after each change. A missing path is a fault and
/// no change.
#[derive(Clone, Debug)]
pub struct FileSource {
    root: PathBuf,
    default_namespace: String,
    formats: &'static [FileFormat],
    reload: ReloadRequests,
    status: Arc<FileStatus>,
}

impl FileSource {
    /// Creates a source of the files at that path; resources without a namespace are of the default one. The path need
    /// not exist yet.
    pub fn new(root: impl Into<PathBuf>, default_namespace: impl Into<String>) -> Self {
        Self {
            root: root.into(),
            default_namespace: default_namespace.into(),
            formats: &[],
            reload: ReloadRequests::default(),
            status: Arc::default(),
        }
    }

    /// Reads files in these formats, too.
    #[must_use]
    pub fn with_formats(self, formats: &'static [FileFormat]) -> Self {
        Self { formats, ..self }
    }

    /// Reads the files again at each request, and offers their resources even if they did not change.
    #[must_use]
    pub fn with_reload(self, reload: ReloadRequests) -> Self {
        Self { reload, ..self }
    }

    async fn watch(self, mut offers: Offers) {
        let name: Arc<str> = self.name().into();
        let mut reload = self.reload.clone();
        let mut is_requested = false;
        let mut seen = None;
        let mut is_missing = false;
        let mut files = ParsedFiles::new(Collection::mixer());
        // The last update, which may still come into use.
        let mut open = None;
        loop {
            // Watched before reading, and again each time: no change is missed in between, and a replaced directory is
            // found.
            let (wake, mut woken) = mpsc::channel(1);
            let watcher = watch_path(&self.root, RecursiveMode::Recursive, wake);
            let mut now = self.list().await;
            if is_requested || seen.as_ref() != Some(&now) {
                if seen.is_some() {
                    now = self.debounce(now).await;
                }
                let (mut there, mut faults) = self.read(&mut files).await;
                if seen.is_some() && faults.iter().any(ValidationError::is_error) {
                    time::sleep(RETRY).await;
                    now = self.debounce(self.list().await).await;
                    (there, faults) = self.read(&mut files).await;
                }
                if !there && !is_missing {
                    tracing::warn!(path = %self.root.display(), "nothing is at this path; waiting for it");
                }
                is_missing = !there;
                seen = Some(now);
                let changes = if there { files.changes() } else { Vec::new() };
                let offered = self.status.offered(&name, &changes);
                let update = Update { source: name.clone(), changes, faults };
                let Some(mut decisions) = offers.offer(update).await else { return };
                if let Some(decision) = decisions.next().await {
                    self.status.decided(&offered, &decision);
                }
                open = Some((offered, decisions));
            }
            is_requested = false;
            let interval = if watcher.is_some() { SLOW_POLL } else { POLL };
            tokio::select! {
                Some(()) = woken.recv() => {}
                () = reload.next() => is_requested = true,
                () = self.follow(&mut open) => {}
                () = time::sleep(interval) => {}
                () = offers.closed() => return,
            }
        }
    }

    /// Records the next decision on an update; waits forever after the last one.
    async fn follow(&self, open: &mut Option<(Offered, Decisions)>) {
        if let Some((offered, decisions)) = open
            && let Some(decision) = decisions.next().await
        {
            return self.status.decided(offered, &decision);
        }
        *open = None;
        pending::<()>().await;
    }

    /// Returns the listing of the files once they have stopped changing.
    async fn debounce(&self, mut before: Listing) -> Listing {
        for _ in 0..PATIENCE {
            time::sleep(QUIET).await;
            let now = self.list().await;
            if now == before {
                break;
            }
            before = now;
        }
        before
    }

    async fn list(&self) -> Listing {
        let (root, formats) = (self.root.clone(), self.formats);
        spawn_blocking(move || Listing::at(&root, formats)).await.unwrap_or_default()
    }

    /// Reads the files, and returns their faults; the first value is false if the path itself is missing, which is not the
    /// same as an empty directory.
    async fn read(&self, files: &mut ParsedFiles) -> (bool, Vec<ValidationError>) {
        let Self { root, default_namespace, formats, .. } = self.clone();
        let collections: Vec<_> = files.collections().cloned().collect();
        let mut former = std::mem::replace(files, ParsedFiles::new(collections));
        let reading = spawn_blocking(move || {
            let there = root.exists();
            let faults = former.read_again(&root, &default_namespace, formats);
            (there && root.exists(), faults, former)
        });
        match reading.await {
            Ok((there, faults, read)) => {
                *files = read;
                (there, faults)
            }
            Err(_) => (false, vec![ValidationError::error("the reader failed").at(&self.name().into(), 0)]),
        }
    }
}

impl Source for FileSource {
    fn name(&self) -> String {
        format!("fs://{}", self.root.display())
    }

    fn handle(&self) -> Option<Arc<dyn SourceHandle>> {
        Some(self.status.clone())
    }

    fn run(self: Box<Self>, offers: Offers) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(self.watch(offers))
    }
}

/// The files with their metadata, which any write or replacement changes, and faults of directories.
#[derive(Debug, Default, PartialEq, Eq)]
struct Listing {
    files: Vec<(PathBuf, Result<Stamp, io::ErrorKind>)>,
    faults: Vec<ValidationError>,
}

#[derive(Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    length: u64,
    changed: (i64, i64),
}

impl Listing {
    fn at(root: &Path, formats: &[FileFormat]) -> Self {
        let (files, faults) = files::list(root, formats);
        let stamped = files.into_iter().map(|path| {
            let stamp = fs::metadata(&path).map(|metadata| Stamp {
                device: metadata.dev(),
                inode: metadata.ino(),
                length: metadata.len(),
                changed: (metadata.ctime(), metadata.ctime_nsec()),
            });
            (path, stamp.map_err(|error| error.kind()))
        });
        Self { files: stamped.collect(), faults }
    }
}
