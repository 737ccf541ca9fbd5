//! Files with responses, one for each type, as Envoy reads them without a server (docs/behaviour/xds.md#files).

use std::{
    collections::{BTreeMap, VecDeque},
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use futures_util::{
    FutureExt as _, StreamExt as _,
    stream::{BoxStream, unfold},
};
use mixer_adapter_net::read_file_within;
use notify::RecursiveMode;
use prost::Message as _;
use serde_json::Value as Json;
use tokio::{sync::mpsc, task::spawn_blocking, time::sleep};
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status};

use super::{response, sotw_messages::Sotw};
use crate::{
    proto::envoy::{
        config::core::v3::Node,
        service::discovery::v3::{DiscoveryRequest, DiscoveryResponse},
    },
    stream::{
        redial::{DialOptions, redial},
        sink::{
            connect::with_stream,
            driver::{Sink, Stream},
            exchange::exchange,
        },
    },
    text_format,
};
use mixer_adapter_config::source::{MAX_FILE, ReloadRequests, watch_path};

/// The maximum number of files of a directory.
const MAX_FILES: usize = 1000;
/// The polling interval where the system does not report moves.
const POLL: Duration = Duration::from_secs(5);

/// The code of the refusal of a collection that was not requested.
const UNIMPLEMENTED: i32 = Code::Unimplemented as i32;

/// The identity of a path. Writing in place does not change it; moving another file there does, and so does swapping a
/// link on its path, as Kubernetes does.
#[derive(Clone, Debug, PartialEq)]
struct Identity {
    device: u64,
    inode: u64,
    made: Option<SystemTime>,
}

/// Passes a file, or all files of a directory, to a sink until `stop` is cancelled: whenever files are moved there, and all
/// at each reload request. A file that cannot be read, or is refused, leaves the previous resources in use.
pub(crate) async fn follow(sink: Sink, path: PathBuf, reload: ReloadRequests, stop: CancellationToken) {
    let name = format!("xds://{}", path.display());
    let redialing = DialOptions { first_wait: POLL, longest_wait: POLL, ..DialOptions::default() };
    redial(&name, &redialing, stop, |stop| {
        let (path, reload) = (path.clone(), reload.clone());
        with_stream(sink.clone(), name.clone(), stop, move |stream, requests| {
            let (wake, woken) = mpsc::channel(1);
            let served = stream.clone();
            exchange(stream, requests, Sotw::new(Node::default()), move |requests| {
                let files = Files {
                    path,
                    reload,
                    stream: served,
                    requests,
                    requested: false,
                    wake,
                    woken,
                    seen: BTreeMap::new(),
                    moved: VecDeque::new(),
                    last_logged: None,
                    responses: 0,
                };
                unfold(files, |mut files| async { Some((Ok(files.next().await?), files)) }).boxed()
            })
        })
        .boxed()
    })
    .await;
}

/// The files at a path, as the server of one stream.
struct Files {
    path: PathBuf,
    reload: ReloadRequests,
    stream: Stream,
    requests: BoxStream<'static, DiscoveryRequest>,
    /// Whether anything was requested; nothing is read before.
    requested: bool,
    wake: mpsc::Sender<()>,
    woken: mpsc::Receiver<()>,
    seen: BTreeMap<PathBuf, Identity>,
    /// The files to read.
    moved: VecDeque<PathBuf>,
    last_logged: Option<String>,
    responses: u64,
}

impl Files {
    /// Returns the response in the next file that was moved there; `None` after the last request.
    async fn next(&mut self) -> Option<DiscoveryResponse> {
        loop {
            while let Some(file) = self.moved.pop_front() {
                let name = file.display().to_string();
                match spawn_blocking(move || read(&file)).await {
                    Ok(Ok(response)) => {
                        self.responses += 1;
                        return Some(DiscoveryResponse { nonce: self.responses.to_string(), ..response });
                    }
                    Ok(Err(error)) => tracing::warn!(file = name, %error, "file skipped"),
                    Err(error) => tracing::warn!(file = name, %error, "reading the file failed"),
                }
            }
            // Watched before the next listing, so that no change is missed in between.
            let _watcher = watch_path(&self.path, RecursiveMode::NonRecursive, self.wake.clone());
            if self.requested {
                self.list().await;
                if !self.moved.is_empty() {
                    continue;
                }
            }
            tokio::select! {
                Some(()) = self.woken.recv(), if self.requested => {}
                () = sleep(POLL), if self.requested => {}
                () = self.reload.next(), if self.requested => self.seen.clear(),
                request = self.requests.next() => {
                    self.on_request(&request?);
                    while let Some(Some(request)) = self.requests.next().now_or_never() {
                        self.on_request(&request);
                    }
                }
            }
        }
    }

    /// Handles a request, which is for the current files. Answers have no receiver.
    fn on_request(&mut self, request: &DiscoveryRequest) {
        self.requested = true;
        if request.response_nonce.is_empty() {
            self.seen.clear();
        }
        // Other refusals are logged by the sink.
        if let Some(error) = request.error_detail.as_ref().filter(|error| error.code == UNIMPLEMENTED) {
            tracing::warn!(path = %self.path.display(), error = error.message, "file skipped");
        }
    }

    /// Finds the files that were moved there since the last listing.
    async fn list(&mut self) {
        let root = self.path.clone();
        let listed = spawn_blocking(move || list(&root)).await.map_err(io::Error::other).flatten();
        let error = listed.as_ref().err().map(ToString::to_string);
        match &error {
            Some(error) => {
                if self.last_logged.as_ref() != Some(error) {
                    tracing::warn!(path = %self.path.display(), error, "nothing can be read there yet");
                }
                self.stream.health().failed(&Status::not_found(error.as_str()));
            }
            None => self.stream.health().recovered(),
        }
        self.last_logged = error;
        let now = listed.unwrap_or_default();
        let moved = now.iter().filter(|(file, identity)| self.seen.get(*file) != Some(*identity));
        self.moved = moved.map(|(file, _)| file.clone()).collect();
        self.seen = now;
    }
}

/// Returns the files at a path, with their identities.
fn list(root: &Path) -> io::Result<BTreeMap<PathBuf, Identity>> {
    let files = if fs::metadata(root)?.is_dir() {
        let paths = fs::read_dir(root)?.filter_map(|entry| Some(entry.ok()?.path()));
        let visible = paths
            .filter(|path| path.file_name().is_some_and(|name| !name.as_encoded_bytes().starts_with(b".")));
        visible.take(MAX_FILES).collect()
    } else {
        vec![root.to_owned()]
    };
    Ok(files.into_iter().filter_map(|path| Some((path.clone(), identity(&path)?))).collect())
}

fn identity(path: &Path) -> Option<Identity> {
    let metadata = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
    Some(Identity { device: metadata.dev(), inode: metadata.ino(), made: metadata.created().ok() })
}

/// The reason why a file is not read.
#[derive(Debug, thiserror::Error)]
enum FileError {
    #[error("it cannot be read: {0}")]
    Io(#[from] io::Error),
    #[error("it is not JSON: {0}")]
    Json(#[from] serde_json::Error),
    #[error("it is not UTF-8: {0}")]
    Utf8(#[from] std::string::FromUtf8Error),
    #[error("it is not YAML: {0}")]
    Yaml(#[from] serde_saphyr::Error),
    #[error(transparent)]
    TextFormat(#[from] text_format::TextFormatError),
    #[error("it is not a DiscoveryResponse, and its name does not end in .json, .yaml or .textproto: {0}")]
    Decode(#[from] prost::DecodeError),
    #[error(transparent)]
    Response(#[from] response::ResponseError),
    #[error("it has no type_url")]
    NoType,
}

/// Reads a response: JSON, YAML or the text format by the name of the file, and otherwise binary.
fn read(path: &Path) -> Result<DiscoveryResponse, FileError> {
    let bytes = read_file_within(path, MAX_FILE)?;
    let mut response = match path.extension().and_then(|extension| extension.to_str()) {
        _ if text_format::is_text_format(path) => {
            response::of_json(text_format::to_json(&String::from_utf8(bytes)?)?)?
        }
        Some("json") => response::of_json(serde_json::from_slice(&bytes)?)?,
        Some("yaml" | "yml") => {
            let json: Json = serde_saphyr::from_str(&String::from_utf8(bytes)?)?;
            response::of_json(json)?
        }
        _ => DiscoveryResponse::decode(&*bytes)?,
    };
    if response.type_url.is_empty() {
        // As in files for Envoy, whose resources have their type.
        let first = response.resources.first();
        response.type_url = first.map(|any| any.type_url.clone()).ok_or(FileError::NoType)?;
    }
    Ok(response)
}
