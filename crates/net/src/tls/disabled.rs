//! The types of TLS without the feature `tls`: none of them can be created.

#![allow(clippy::unused_async, clippy::unused_self, reason = "the signatures are those with the feature")]

use std::{
    collections::BTreeMap,
    convert::Infallible,
    path::PathBuf,
    sync::Arc,
    time::{Duration, SystemTime},
};

use tokio::net::TcpStream;

use super::{Access, AccessSettings, ClientOptions, Credentials, ReadFile, ServerOptions, TlsError};
use crate::Stream;

/// A connection over TLS.
pub type TlsStream<S = TcpStream> = S;

/// The dialing end of TLS.
#[derive(Debug)]
pub enum Client {}

/// The accepting end of TLS.
#[derive(Debug)]
pub enum Server {}

/// The identity in a peer's certificate.
#[derive(Clone, Debug)]
pub enum Identity {}

impl Client {
    /// Fails.
    ///
    /// # Errors
    /// Always [`TlsError::Disabled`].
    pub fn new(_: ClientOptions) -> Result<Arc<Self>, TlsError> {
        Err(TlsError::Disabled)
    }

    /// Fails.
    ///
    /// # Errors
    /// Always [`TlsError::Disabled`].
    pub fn load(_: ClientOptions) -> Result<Arc<Self>, TlsError> {
        Err(TlsError::Disabled)
    }

    /// Fails.
    ///
    /// # Errors
    /// Always [`TlsError::Disabled`].
    pub fn load_with(_: ClientOptions, _: ReadFile) -> Result<Arc<Self>, TlsError> {
        Err(TlsError::Disabled)
    }

    /// Cannot be called.
    pub async fn connect<S>(&self, _: &str, _: S, _: &[&str]) -> Result<TlsStream<S>, TlsError> {
        match *self {}
    }

    /// Cannot be called.
    pub async fn ready(&self) {
        match *self {}
    }

    /// Cannot be called.
    pub async fn watch(&self) -> Infallible {
        match *self {}
    }
}

/// Returns nothing: no certificate is used.
pub fn certificate_ends() -> BTreeMap<PathBuf, SystemTime> {
    BTreeMap::new()
}

/// Accepts every name: none is used.
///
/// # Errors
/// None.
pub fn check_server_name(_: &str) -> Result<(), TlsError> {
    Ok(())
}

impl Server {
    /// Fails.
    ///
    /// # Errors
    /// Always [`TlsError::Disabled`].
    pub fn new(_: Credentials, _: AccessSettings) -> Result<Arc<Self>, TlsError> {
        Err(TlsError::Disabled)
    }

    /// Fails.
    ///
    /// # Errors
    /// Always [`TlsError::Disabled`].
    pub fn load(_: ServerOptions) -> Result<Arc<Self>, TlsError> {
        Err(TlsError::Disabled)
    }

    /// Cannot be called.
    pub fn reload(&self) {
        match *self {}
    }

    /// Cannot be called.
    pub async fn accept(&self, _: Stream, _: Duration) -> Result<(Stream, Option<Identity>), TlsError> {
        match *self {}
    }

    /// Cannot be called.
    pub fn access(&self) -> Option<&Access> {
        match *self {}
    }

    /// Cannot be called.
    pub async fn ready(&self) {
        match *self {}
    }

    /// Cannot be called.
    pub async fn watch(&self) -> Infallible {
        match *self {}
    }
}

impl Identity {
    /// Cannot be called.
    pub fn names(&self) -> &[String] {
        match *self {}
    }

    /// Cannot be called.
    pub fn has(&self, _: &str) -> bool {
        match *self {}
    }
}
