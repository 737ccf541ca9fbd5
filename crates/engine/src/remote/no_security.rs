//! What stands for `security` where the feature `tls` is off: nothing that asks for it can be configured.

use http::{HeaderName, HeaderValue};
use tokio::{net::TcpStream, runtime::Handle};
use tonic::Status;

use super::{Options, address::Address};
use mixer_adapter_config::proto::istio::policy::v1beta1::Authentication;
use mixer_adapter_core::adapter::ConfigErrors;

#[derive(Debug)]
pub(super) enum Settings {}

impl Settings {
    pub(super) fn read(_: &Authentication, errors: &mut ConfigErrors) -> Option<Self> {
        errors.push("connection.authentication", "this build has no TLS (the cargo feature `tls` is off)");
        None
    }
}

#[derive(Debug)]
pub(super) enum Security {}

impl Security {
    pub(super) fn load(
        settings: Settings,
        _: &Address,
        _: &Options,
        _: &Handle,
    ) -> Result<Self, ConfigErrors> {
        match settings {}
    }

    pub(super) fn server_name(&self) -> Option<&str> {
        match *self {}
    }

    pub(super) async fn secure(&self, _: TcpStream) -> Result<TcpStream, String> {
        match *self {}
    }

    pub(super) async fn token(&self) -> Result<Option<(HeaderName, HeaderValue)>, Status> {
        match *self {}
    }
}
