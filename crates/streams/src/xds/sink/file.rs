//! Files with responses, one for each type, as Envoy reads them without a server (docs/behaviour/xds.md#files).

use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use mixer_adapter_net::read_file_within;
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use prost::Message as _;
use serde_json::Value as Json;
use tokio::{sync::mpsc, task::spawn_blocking, time};
use tonic::{Code, Status};

use super::{response, sotw::Sotw};
use crate::{
    proto::envoy::{config::core::v3::Node, service::discovery::v3::DiscoveryResponse},
    stream::{
        redial::Ended,
        sink::{
            connect::with_stream,
            dialect::Dialect as _,
            driver::{Requests, Sink, Stream},
        },
    },
    text_format,
};
use mixer_adapter_config::source::{MAX_FILE, ReloadRequests};

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

/// Passes a file, or all files of a directory, to a sink: whenever files are moved there, and all at each reload
/// request. A file that cannot be read, or is refused, leaves the previous resources in use.
pub(crate) async fn follow(sink: Sink, path: PathBuf, reload: ReloadRequests) {
    let stop = tokio_util::sync::CancellationToken::new();
    loop {
        let (own, name) = (path.clone(), format!("xds://{}", path.display()));
        let reload = reload.clone();
        let Ended { status, .. } = with_stream(sink.clone(), name, stop.clone(), |stream, requests| {
            exchange(own, reload, stream, requests)
        })
        .await;
        tracing::warn!(path = %path.display(), %status, "stream ended; reading all files again");
        time::sleep(POLL).await;
    }
}

async fn exchange(
    path: PathBuf,
    mut reload: ReloadRequests,
    stream: Stream,
    mut requests: Requests,
) -> Status {
    let mut dialect = Sotw::new(Node::default());
    let mut seen = BTreeMap::new();
    let mut nonces = 0_u64;
    let mut requested = false;
    let mut last_logged: Option<String> = None;
    loop {
        // Watched before the first reading, so that no change is missed in between.
        let (wake, mut woken) = mpsc::channel(1);
        let _watcher = watcher(&path, wake);
        if requested {
            let root = path.clone();
            let listed = spawn_blocking(move || list(&root)).await.map_err(io::Error::other).flatten();
            let error = listed.as_ref().err().map(ToString::to_string);
            if let Some(error) = error.as_ref().filter(|error| last_logged.as_ref() != Some(*error)) {
                tracing::warn!(path = %path.display(), error, "nothing can be read there yet");
            }
            match &error {
                Some(error) => stream.health().failed(&Status::not_found(error.as_str())),
                None => stream.health().recovered(),
            }
            last_logged = error;
            let now = listed.unwrap_or_default();
            let moved = now.iter().filter(|(file, identity)| seen.get(*file) != Some(*identity));
            for file in moved.map(|(file, _)| file.clone()) {
                let name = file.display().to_string();
                match spawn_blocking(move || read(&file)).await {
                    Ok(Ok(response)) => {
                        nonces += 1;
                        let nonce = nonces.to_string();
                        let received = dialect.on_response(DiscoveryResponse { nonce, ..response });
                        if let Some(push) = received.push {
                            stream.received(push).await;
                        }
                    }
                    Ok(Err(error)) => tracing::warn!(file = name, %error, "file skipped"),
                    Err(error) => tracing::warn!(file = name, %error, "reading the file failed"),
                }
            }
            seen = now;
        }
        tokio::select! {
            Some(()) = woken.recv(), if requested => {}
            () = time::sleep(POLL), if requested => {}
            () = reload.next(), if requested => seen.clear(),
            request = requests.recv() => match request {
                // Answers have no receiver; a request is for the current files.
                Some(Ok(request)) => {
                    let mut next = Some(request);
                    while let Some(request) = next {
                        if request.response_nonce.is_empty() {
                            seen.clear();
                        }
                        // Other refusals are logged by the sink.
                        if let Some(error) = request.error_detail.as_ref().filter(|error| error.code == UNIMPLEMENTED) {
                            tracing::warn!(path = %path.display(), error = error.message, "file skipped");
                        }
                        dialect.on_request(request);
                        next = requests.try_recv().ok().and_then(Result::ok);
                    }
                    requested = true;
                }
                Some(Err(status)) => return status,
                None => return Status::aborted("the sink is gone"),
            },
        }
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

/// Wakes on changes in the directory of the path, or in the path itself.
fn watcher(path: &Path, wake: mpsc::Sender<()>) -> Option<RecommendedWatcher> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let directory = if path.is_dir() { path } else { parent };
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        // This program reads it: that changes nothing.
        if !event.is_ok_and(|event| matches!(event.kind, EventKind::Access(_))) {
            // One pending wake-up represents any number of events.
            let _ = wake.try_send(());
        }
    })
    .ok()?;
    watcher.watch(directory, RecursiveMode::NonRecursive).ok()?;
    Some(watcher)
}
