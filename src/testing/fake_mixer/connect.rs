//! Handlers of a test, with a record of their calls.

use std::sync::Arc;

use bytes::Bytes;
use tonic::Status;

use super::call::RecordedCall;
use mixer_adapter_config::ValidationError;
use mixer_adapter_core::{framework::dynamic::DynamicTemplate, proto::Any};
use mixer_adapter_engine::{
    HandlerBackend,
    build::{BackendSpec, BoxBackend, Connect, Connector, HandlerSpec},
};
use mixer_adapter_host::{
    Host,
    handler::{BoxFuture, Caller},
};

/// Opens the handlers of a test.
pub(super) struct TestConnector {
    pub(super) host: Arc<Host>,
    /// Opens handlers of the adapters under test, in the process.
    pub(super) local: Connector,
    /// Opens handlers at the addresses of their connections.
    pub(super) remote: Connector,
    /// The address of the adapters under test, if they run in another process.
    pub(super) address: Option<String>,
}

impl Connect for TestConnector {
    fn connect<'a>(
        &'a self,
        spec: &'a HandlerSpec,
    ) -> BoxFuture<'a, Result<BoxBackend, Vec<ValidationError>>> {
        Box::pin(async move {
            let target = match self.under_test(spec) {
                None => self.remote.connect(spec).await,
                Some(spec) if self.address.is_some() => self.remote.connect(&spec).await,
                Some(spec) => self.local.connect(&spec).await,
            };
            let config = match &spec.backend {
                BackendSpec::InProcess { adapter, config } => {
                    Some(Any { type_url: adapter.config.full_name().to_owned(), value: config.clone() })
                }
                BackendSpec::Remote { adapter_config, .. } => adapter_config.clone(),
            };
            Ok(Box::new(RecordedTarget { handler: spec.name.to_string(), config, target: target? })
                as BoxBackend)
        })
    }
}

impl TestConnector {
    /// The handler of an adapter under test, with the connection to this adapter in place of the configured one.
    fn under_test(&self, spec: &HandlerSpec) -> Option<HandlerSpec> {
        let mut spec = spec.clone();
        if let BackendSpec::Remote { connection, adapter_config, .. } = &mut spec.backend {
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

/// A target that records its calls.
struct RecordedTarget {
    handler: String,
    config: Option<Any>,
    target: BoxBackend,
}

impl HandlerBackend for RecordedTarget {
    fn call<'a>(
        &'a self,
        template: &'a DynamicTemplate,
        request: Bytes,
        caller: &'a Caller,
    ) -> BoxFuture<'a, Result<Bytes, Status>> {
        Box::pin(async move {
            let answer = self.target.call(template, request.clone(), caller).await;
            RecordedCall::record(&self.handler, self.config.as_ref(), template, request, answer.clone());
            answer
        })
    }

    fn adapter_config(&self) -> Option<Bytes> {
        self.target.adapter_config()
    }
}
