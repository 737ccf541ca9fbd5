//! What stands for TLS where the feature `tls` is off: none of it can be made.

use std::{convert::Infallible, sync::Arc};

use tokio::net::TcpStream;

use super::{Access, AccessSettings, Credentials};

const ABSENT: &str = "this build has no TLS (the cargo feature `tls` is off)";

/// A connection that is TLS.
pub type Secured = TcpStream;

/// The end of connections that dials.
#[derive(Debug)]
pub enum Client {}

/// The end of connections that is dialed.
#[derive(Debug)]
pub enum Server {}

/// Who a peer is.
#[derive(Clone, Debug)]
pub enum Identity {}

impl Client {
    /// There is none.
    pub fn new(_: Credentials, _: Vec<String>) -> Result<Arc<Self>, String> {
        Err(ABSENT.to_owned())
    }

    /// Cannot be called.
    pub async fn secure(&self, _: &str, _: TcpStream) -> Result<Secured, String> {
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

impl Server {
    /// There is none.
    pub fn new(_: Credentials, _: AccessSettings) -> Result<Arc<Self>, String> {
        Err(ABSENT.to_owned())
    }

    /// Cannot be called.
    pub async fn secure(&self, _: TcpStream) -> Result<(TcpStream, Option<Identity>), String> {
        match *self {}
    }

    /// Cannot be called.
    pub fn access(&self) -> &Access {
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
