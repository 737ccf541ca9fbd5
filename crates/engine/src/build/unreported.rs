//! Handlers whose answers are wanted and whose reports are not.

use bytes::Bytes;
use tonic::Status;

use super::{BackendSpec, BoxBackend, Connect, Connecting, HandlerSpec};
use crate::handler::{Called, HandlerBackend, LocalBackend};
use mixer_adapter_core::{framework::dynamic::DynamicTemplate, template::Variety};
use mixer_adapter_host::handler::Caller;

/// Opens backends whose reports are not delivered. Handlers of this process that only report are not opened.
pub(super) struct Unreported<'c>(pub(super) &'c dyn Connect);

impl Connect for Unreported<'_> {
    fn connect<'a>(&'a self, spec: &'a HandlerSpec) -> Connecting<'a> {
        Box::pin(async move {
            let is_opened =
                matches!(spec.backend, BackendSpec::Remote { .. }) || spec.is_local_with_answers();
            let opened = if is_opened { Some(self.0.connect(spec).await?) } else { None };
            Ok(unreported(opened))
        })
    }
}

/// Returns a backend whose reports are not delivered; without an opened one, all calls are skipped.
pub fn unreported(opened: Option<BoxBackend>) -> BoxBackend {
    Box::new(UnreportedBackend(opened))
}

struct UnreportedBackend(Option<BoxBackend>);

impl HandlerBackend for UnreportedBackend {
    fn call<'a>(&'a self, template: &'a DynamicTemplate, request: Bytes, caller: &'a Caller) -> Called<'a> {
        match &self.0 {
            Some(opened) => opened.call(template, request, caller),
            None => Box::pin(std::future::ready(Err(Status::unavailable("not called")))),
        }
    }

    fn adapter_config(&self) -> Option<Bytes> {
        self.0.as_ref().and_then(|opened| opened.adapter_config())
    }

    fn is_called(&self, template: &DynamicTemplate) -> bool {
        let is_called = self.0.as_ref().is_some_and(|opened| opened.is_called(template));
        is_called && template.variety() != Variety::Report
    }

    fn local(&self) -> Option<&LocalBackend> {
        self.0.as_ref().and_then(|opened| opened.local())
    }

    fn logs_failures(&self) -> bool {
        self.0.as_ref().is_some_and(|opened| opened.logs_failures())
    }
}
