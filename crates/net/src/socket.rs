//! Listening sockets: TCP, and Unix sockets with their files.

use std::{
    fmt,
    fs::{self, File, TryLockError},
    io::{self, ErrorKind},
    net::{IpAddr, SocketAddr},
    os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::io::ioctl_fionread;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio_util::either::Either;

use crate::random;

/// The maximum number of connections that wait to be accepted; the system may allow fewer.
const QUEUE: i32 = 4_096;

/// The address of a listening socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// An IP address and a port; port 0 takes a free one.
    Tcp(SocketAddr),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

impl ListenAddress {
    /// Returns the IP address and the port; `None` for a Unix socket.
    pub fn tcp(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(address) => Some(*address),
            Self::Unix(_) => None,
        }
    }

    /// Returns whether only this machine can connect.
    pub fn is_local(&self) -> bool {
        self.tcp().is_none_or(|address| address.ip().is_loopback())
    }
}

impl From<SocketAddr> for ListenAddress {
    fn from(address: SocketAddr) -> Self {
        Self::Tcp(address)
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// A connection over TCP or a Unix socket.
pub type Stream = Either<TcpStream, UnixStream>;

/// A stream that knows how much its peer is ahead.
pub(crate) trait Unread {
    /// Returns the number of bytes that have arrived and were not read.
    fn unread(&self) -> usize;
}

impl Unread for Stream {
    fn unread(&self) -> usize {
        let unread = match self {
            Self::Left(tcp) => ioctl_fionread(tcp),
            Self::Right(unix) => ioctl_fionread(unix),
        };
        // Nobody waits for what cannot be known.
        unread.ok().and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or_default()
    }
}

#[cfg(feature = "tls")]
impl Unread for tokio_rustls::server::TlsStream<Stream> {
    /// Encrypted bytes.
    fn unread(&self) -> usize {
        self.get_ref().0.unread()
    }
}

/// An accepted connection that no runtime polls yet.
pub(crate) type DetachedStream = Either<std::net::TcpStream, std::os::unix::net::UnixStream>;

/// Lets the current runtime poll a connection.
pub(crate) fn attach(stream: DetachedStream) -> io::Result<Stream> {
    Ok(match stream {
        Either::Left(stream) => Either::Left(TcpStream::from_std(stream)?),
        Either::Right(stream) => Either::Right(UnixStream::from_std(stream)?),
    })
}

/// A listening socket.
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpListener),
    /// The file is removed while the socket still listens, so that no other process can have replaced it.
    Unix(SocketFile, UnixListener),
}

impl Socket {
    pub(crate) async fn bind(address: &ListenAddress) -> io::Result<Self> {
        match address {
            ListenAddress::Tcp(address) => {
                let listener = TcpListener::bind(address).await?;
                // The queue of Rust's standard library is so short that a burst of connections makes others wait for a second.
                rustix::net::listen(&listener, QUEUE)?;
                Ok(Self::Tcp(listener))
            }
            ListenAddress::Unix(path) => {
                let (listener, file) = SocketFile::bind(path).await?;
                Ok(Self::Unix(file, listener))
            }
        }
    }

    /// Moves the socket to the current runtime.
    pub(crate) fn moved(self) -> io::Result<Self> {
        Ok(match self {
            Self::Tcp(listener) => Self::Tcp(TcpListener::from_std(listener.into_std()?)?),
            Self::Unix(file, listener) => Self::Unix(file, UnixListener::from_std(listener.into_std()?)?),
        })
    }

    pub(crate) fn address(&self) -> io::Result<ListenAddress> {
        match self {
            Self::Tcp(listener) => listener.local_addr().map(ListenAddress::Tcp),
            Self::Unix(file, _) => Ok(ListenAddress::Unix(file.path.clone())),
        }
    }

    /// Returns the next connection, with the IP address of its peer.
    pub(crate) async fn accept(&self) -> io::Result<(DetachedStream, Option<IpAddr>)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                stream.set_nodelay(true)?;
                Ok((Either::Left(stream.into_std()?), Some(peer.ip())))
            }
            Self::Unix(_, listener) => {
                let (stream, _) = listener.accept().await?;
                Ok((Either::Right(stream.into_std()?), None))
            }
        }
    }
}

/// The file of a Unix socket that listens. It is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    /// Device and inode: the path may name another file by then.
    identity: (u64, u64),
}

/// The maximum length of the path of a Unix socket in bytes.
const MAX_PATH: usize = 107;

/// How long to wait for other processes that begin to listen in the same directory.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
const LOCK_POLL: Duration = Duration::from_millis(10);

impl SocketFile {
    /// Listens on `path`, for this user only. Replaces the socket of a process that has ended.
    async fn bind(path: &Path) -> io::Result<(UnixListener, Self)> {
        // In a directory that nobody else can enter, until the mode is set.
        let directory = path.with_file_name(format!(".{:08x}", (random() * f64::from(u32::MAX)) as u32));
        let private = directory.join("s");
        check_length(path, &private)?;
        // Of processes that start at the same time, one gets the path.
        let _lock = lock(path.parent().filter(|parent| *parent != "").unwrap_or(Path::new("."))).await?;
        check_free(path).await?;
        fs::DirBuilder::new().mode(0o700).create(&directory)?;
        let bound = Self::bind_private(&private, path);
        let _ = fs::remove_dir_all(&directory);
        bound
    }

    fn bind_private(private: &Path, path: &Path) -> io::Result<(UnixListener, Self)> {
        let listener = UnixListener::bind(private)?;
        fs::set_permissions(private, fs::Permissions::from_mode(0o600))?;
        fs::rename(private, path)?;
        let file = fs::symlink_metadata(path)?;
        Ok((listener, Self { path: path.to_owned(), identity: (file.dev(), file.ino()) }))
    }
}

/// Checks that a socket can have these paths, one after the other.
fn check_length(path: &Path, private: &Path) -> io::Result<()> {
    let length = path.as_os_str().len();
    let longest = length.max(private.as_os_str().len());
    if longest <= MAX_PATH {
        return Ok(());
    }
    let limit = MAX_PATH.saturating_sub(longest - length);
    let text = format!("its path has {length} bytes; that of a Unix socket here can have {limit} at most");
    Err(io::Error::new(ErrorKind::InvalidInput, text))
}

/// Locks a directory until the result is dropped. A directory that cannot be read, or whose file system has no locks, is not
/// locked: then two processes that start at the same moment may both get the path.
async fn lock(directory: &Path) -> io::Result<Option<File>> {
    let locked = async {
        let file = File::open(directory)?;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::Error(error)) => return Err(error),
                Err(TryLockError::WouldBlock) => tokio::time::sleep(LOCK_POLL).await,
            }
        }
    };
    match tokio::time::timeout(LOCK_TIMEOUT, locked).await {
        Ok(Ok(file)) => Ok(Some(file)),
        Ok(Err(error)) => {
            tracing::warn!(
                directory = %directory.display(),
                %error,
                "the directory of the socket cannot be locked; start one process at a time there"
            );
            Ok(None)
        }
        Err(_) => Err(io::Error::new(ErrorKind::TimedOut, "another process has locked its directory")),
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|file| (file.dev(), file.ino()) == self.identity) {
            // The directory may have been removed meanwhile.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Checks that nobody listens on `path`, and that it names nothing but a socket.
async fn check_free(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(file) if !file.file_type().is_socket() => {
            return Err(io::Error::new(ErrorKind::AlreadyExists, "the file exists and is not a socket"));
        }
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    }
    match UnixStream::connect(path).await {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(()),
        // A full queue of connections, too, means that somebody listens.
        Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
        _ => Err(io::Error::new(ErrorKind::AddrInUse, "another process listens on it")),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn unix(path: PathBuf) -> ListenAddress {
        ListenAddress::Unix(path)
    }

    #[tokio::test]
    async fn a_unix_socket_is_for_its_user_only_and_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let address = unix(directory.path().join("a.sock"));
        let ListenAddress::Unix(path) = &address else { unreachable!() };
        let socket = Socket::bind(&address).await.unwrap();
        assert_eq!(socket.address().unwrap(), address);
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "nothing else remains");
        UnixStream::connect(path).await.unwrap();
        socket.accept().await.unwrap();
        drop(socket);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn the_socket_of_a_dead_process_is_replaced_and_that_of_a_live_one_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.sock");
        // Its file remains.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let live = Socket::bind(&unix(path.clone())).await.unwrap();
        let error = Socket::bind(&unix(path.clone())).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrInUse, "{error}");
        UnixStream::connect(&path).await.unwrap();
        live.accept().await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn of_processes_that_start_at_the_same_time_one_gets_the_path() {
        let directory = tempfile::tempdir().unwrap();
        for round in 0..50 {
            let path = directory.path().join(format!("{round}.sock"));
            drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
            let starting = (0..8).map(|_| {
                let address = unix(path.clone());
                tokio::spawn(async move { Socket::bind(&address).await })
            });
            let mut listening = Vec::new();
            for started in starting.collect::<Vec<_>>() {
                match started.await.unwrap() {
                    Ok(socket) => listening.push(socket),
                    Err(error) => assert_eq!(error.kind(), ErrorKind::AddrInUse, "{error}"),
                }
            }
            assert_eq!(listening.len(), 1);
            UnixStream::connect(&path).await.unwrap();
            listening[0].accept().await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_directory_that_cannot_be_locked_may_have_a_socket() {
        let directory = tempfile::tempdir().unwrap();
        let below = directory.path().join("below");
        // Its user may create files in it and not list them.
        fs::DirBuilder::new().mode(0o300).create(&below).unwrap();
        let socket = Socket::bind(&unix(below.join("a.sock"))).await.unwrap();
        UnixStream::connect(below.join("a.sock")).await.unwrap();
        drop(socket);
        assert!(lock(&directory.path().join("none")).await.unwrap().is_none());
    }

    #[tokio::test]
    async fn a_path_that_is_too_long_is_an_error_with_the_limit() {
        let directory = tempfile::tempdir().unwrap();
        let base = directory.path().as_os_str().len() + 1;
        let path = |length: usize| unix(directory.path().join("x".repeat(length - base)));
        drop(Socket::bind(&path(107)).await.unwrap());
        let error = Socket::bind(&path(108)).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "its path has 108 bytes; that of a Unix socket here can have 107 at most"
        );
    }

    #[tokio::test]
    async fn other_files_are_never_replaced_or_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.sock");
        let socket = Socket::bind(&unix(path.clone())).await.unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, "text").unwrap();
        let error = Socket::bind(&unix(path.clone())).await.unwrap_err();
        assert_eq!(error.to_string(), "the file exists and is not a socket");
        drop(socket);
        assert_eq!(fs::read_to_string(&path).unwrap(), "text");
    }
}
