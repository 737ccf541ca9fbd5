//! A cache of the last accepted configuration on disk, for restarts without the source.

use std::{
    collections::BTreeMap,
    fs, io,
    io::Write as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;

use mixer_adapter_net::read_file_within;
use prost::Message as _;
use sha2::{Digest as _, Sha256};
use tokio::{sync::mpsc, task::JoinHandle};

use super::{collection::SinkCollection, nack::ResourceError};
use crate::{proto::istio::mcp::v1alpha1::Resources, stream::raw_resource::RawResource};
use mixer_adapter_config::source::MAX_FILE;

/// The time for which changes are gathered before they are written.
const GATHER: Duration = Duration::from_secs(1);

/// A directory that holds one file for each collection: a full push of it, as MCP encodes it, with a checksum as its nonce.
#[derive(Clone, Debug)]
pub struct Cache {
    directory: PathBuf,
}

/// The cached state of a collection.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct CachedCollection {
    pub(super) collection: String,
    pub(super) version: String,
    pub(super) resources: Vec<Arc<RawResource>>,
}

impl Cache {
    /// Opens the cache in that directory, which is created if it does not exist.
    pub fn open(directory: impl Into<PathBuf>) -> io::Result<Self> {
        let directory = directory.into();
        fs::create_dir_all(&directory)?;
        Ok(Self { directory })
    }

    /// Reads all collections. Files that cannot be read are logged and skipped: a source will send them.
    pub(super) fn load(&self) -> Vec<CachedCollection> {
        let files = match fs::read_dir(&self.directory) {
            Ok(files) => files,
            Err(error) => {
                tracing::warn!(directory = %self.directory.display(), %error, "reading the configuration cache failed");
                return Vec::new();
            }
        };
        let paths = files.filter_map(|file| Some(file.ok()?.path()));
        let mut paths: Vec<_> = paths.filter(|path| path.extension().is_some_and(|end| end == END)).collect();
        paths.sort();
        paths
            .iter()
            .filter_map(|path| match CachedCollection::read(path) {
                Ok(cached) => Some(cached),
                Err(error) => {
                    tracing::warn!(file = %path.display(), %error, "file of the configuration cache skipped");
                    None
                }
            })
            .collect()
    }

    /// Replaces the cached state of a collection. The previous file remains until the new one is complete.
    fn write(&self, cached: &CachedCollection) -> io::Result<()> {
        let path = self.directory.join(file_name(&cached.collection));
        let unfinished = path.with_extension("unfinished");
        let mut push = Resources {
            system_version_info: cached.version.clone(),
            collection: cached.collection.clone(),
            resources: cached.resources.iter().map(|resource| resource.to_message()).collect(),
            ..Resources::default()
        };
        push.nonce = checksum(&push);
        let mut file = fs::File::create(&unfinished)?;
        file.write_all(&push.encode_to_vec())?;
        file.sync_all()?;
        fs::rename(&unfinished, &path)
    }
}

/// The extension of the files of a cache.
const END: &str = "mcp";

/// Returns a unique file name for each collection: other than plain characters are written in hexadecimal.
fn file_name(collection: &str) -> String {
    let mut name = String::new();
    for byte in collection.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => name.push(char::from(byte)),
            _ => name.push_str(&format!("%{byte:02x}")),
        }
    }
    format!("{name}.{END}")
}

/// The reason why a file of the cache is not read.
#[derive(Debug, thiserror::Error)]
enum ReadError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Decode(#[from] prost::DecodeError),
    #[error("the checksum does not match")]
    Checksum,
    #[error("{0}")]
    Resource(ResourceError),
}

/// A digest of a push without its nonce.
fn checksum(push: &Resources) -> String {
    let digest = Sha256::digest(push.encode_to_vec());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl CachedCollection {
    fn read(path: &Path) -> Result<Self, ReadError> {
        let bytes = read_file_within(path, MAX_FILE)?;
        let mut push = Resources::decode(&*bytes)?;
        let expected = std::mem::take(&mut push.nonce);
        if checksum(&push) != expected {
            return Err(ReadError::Checksum);
        }
        let resources = push.resources.into_iter().enumerate();
        let resources = resources
            .map(|(place, resource)| RawResource::read(&push.collection, resource, place).map(Arc::new));
        let resources = resources.collect::<Result<_, _>>().map_err(ReadError::Resource)?;
        Ok(Self { collection: push.collection, version: push.system_version_info, resources })
    }
}

/// Writes to a cache on a blocking thread, and combines frequent changes.
#[derive(Debug)]
pub(super) struct Writer {
    unwritten: Arc<Mutex<BTreeMap<Arc<str>, CachedCollection>>>,
    wake: mpsc::Sender<()>,
    task: JoinHandle<()>,
}

impl Writer {
    pub(super) fn start(cache: Cache) -> Self {
        let unwritten = Arc::<Mutex<BTreeMap<Arc<str>, CachedCollection>>>::default();
        let (wake, mut woken) = mpsc::channel(1);
        let task = tokio::spawn({
            let unwritten = unwritten.clone();
            async move {
                loop {
                    let more = woken.recv().await.is_some();
                    if more {
                        // Ends early when no change can follow.
                        let _ = tokio::time::timeout(GATHER, closed(&mut woken)).await;
                    }
                    let batch = std::mem::take(&mut *unwritten.lock());
                    let cache = cache.clone();
                    let written = tokio::task::spawn_blocking(move || {
                        batch.values().try_for_each(|cached| cache.write(cached))
                    });
                    if let Err(error) = written.await.map_err(io::Error::other).flatten() {
                        tracing::warn!(%error, "writing the configuration cache failed");
                    }
                    if !more {
                        return;
                    }
                }
            }
        });
        Self { unwritten, wake, task }
    }

    pub(super) fn enqueue(&self, collection: &SinkCollection) {
        let cached = CachedCollection {
            collection: collection.name().to_string(),
            version: collection.version().to_owned(),
            resources: collection.resources().cloned().collect(),
        };
        self.unwritten.lock().insert(collection.name().clone(), cached);
        // A full channel means that a wake-up is pending.
        let _ = self.wake.try_send(());
    }

    /// Writes pending changes.
    pub(super) async fn finish(self) {
        drop(self.wake);
        let _ = self.task.await;
    }
}

/// Waits until no change can follow, and drops wake-ups meanwhile: one represents all.
async fn closed(woken: &mut mpsc::Receiver<()>) {
    while woken.recv().await.is_some() {}
}
