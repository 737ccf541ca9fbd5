use std::sync::{Arc, Mutex, PoisonError};

use super::{Client, ClientOptions, TlsError};

/// A client that trusts the certificates of the system, made when it is first needed: reading them takes some milliseconds.
#[derive(Debug, Default)]
pub struct SystemClient(Mutex<Option<Arc<Client>>>);

impl From<Arc<Client>> for SystemClient {
    /// Replaces the certificates of the system by the client's.
    fn from(client: Arc<Client>) -> Self {
        Self(Mutex::new(Some(client)))
    }
}

impl SystemClient {
    /// Returns the client.
    ///
    /// # Errors
    /// No usable certificates, and [`TlsError::Disabled`] in builds without TLS.
    pub fn get(&self) -> Result<Arc<Client>, TlsError> {
        let mut client = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = &*client {
            return Ok(client.clone());
        }
        Ok(client.insert(Client::load(ClientOptions::system())?).clone())
    }
}
