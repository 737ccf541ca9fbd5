//! Handlers of a test: which are called where, each watched.

use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Instant;
use tonic::Status;

use super::call::Call;
use mixer_adapter_core::{framework::dynamic::DynamicTemplate, proto::Any};
use mixer_adapter_engine::{
    Target,
    build::{Connect, Connector, HandlerSpec, OpenFault, Opened, Use},
};
use mixer_adapter_host::{Host, handler::BoxFuture};

/// Opens a test's handlers.
pub(super) struct Places {
    pub(super) host: Arc<Host>,
    /// Opens handlers of the adapters under test.
    pub(super) here: Connector,
    /// Opens all others at the addresses they name.
    pub(super) elsewhere: Connector,
    /// Where the adapters under test run, if that is not here.
    pub(super) address: Option<String>,
}

impl Connect for Places {
    fn connect<'a>(&'a self, spec: &'a HandlerSpec) -> BoxFuture<'a, Result<Opened, OpenFault>> {
        Box::pin(async move {
            let target = match self.under_test(spec) {
                None => self.elsewhere.connect(spec).await,
                Some(spec) if self.address.is_some() => self.elsewhere.connect(&spec).await,
                Some(spec) => self.here.connect(&spec).await,
            };
            let config = match &spec.used {
                Use::InProcess { adapter, config } => {
                    Some(Any { type_url: adapter.config.full_name().to_owned(), value: config.clone() })
                }
                Use::Remote { adapter_config, .. } => adapter_config.clone(),
            };
            Ok(Box::new(Watched { handler: spec.name.to_string(), config, target: target? }) as Opened)
        })
    }
}

impl Places {
    /// A handler of an adapter under test, with the connection it has there: not that of its configuration.
    fn under_test(&self, spec: &HandlerSpec) -> Option<HandlerSpec> {
        let mut spec = spec.clone();
        if let Use::Remote { connection, adapter_config, .. } = &mut spec.used {
            let config = adapter_config.as_ref()?;
            self.host.adapters().configured_by(config.message_name())?;
            match &self.address {
                Some(address) => connection.address.clone_from(address),
                None => connection.authentication = None,
            }
        }
        Some(spec)
    }
}

/// A target with a record of its calls.
pub(super) struct Watched {
    pub(super) handler: String,
    pub(super) config: Option<Any>,
    pub(super) target: Opened,
}

impl Target for Watched {
    fn call<'a>(
        &'a self,
        template: &'a DynamicTemplate,
        request: Bytes,
        deadline: Option<Instant>,
    ) -> BoxFuture<'a, Result<Bytes, Status>> {
        Box::pin(async move {
            let answer = self.target.call(template, request.clone(), deadline).await;
            Call::record(&self.handler, &self.config, template, request, answer.clone());
            answer
        })
    }

    fn adapter_config(&self) -> Option<Bytes> {
        self.target.adapter_config()
    }
}
