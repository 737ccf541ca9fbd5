//! An adapter on our own server, which answers by its configuration.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use prost::Message as _;
use tokio::{runtime::Handle as Runtime, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use super::{Port, port};
use mixer_adapter::service::{Server, ServerOptions, Workers};
use mixer_adapter_core::{
    Adapter, AdapterError, Call, Check, Code, Context, Handle,
    adapter::{Config, Faults, Settings},
    proto::{Any, CheckResult},
};
use mixer_adapter_host::{
    Host,
    handler::{Adapters, Closing, TableLimits},
};
use mixer_adapter_templates::{CheckNothing, checknothing};

/// What the adapter does; on the wire a message that there is.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Params {
    #[prost(string, tag = "1")]
    text: String,
}

impl Config for Params {
    const NAME: &str = "istio.policy.v1beta1.Uri";
    const DESCRIPTOR: &[u8] = mixer_adapter_core::proto::DESCRIPTORS;
    const GENERATED: () = ();
}

/// `adapter_config` for it.
pub(super) fn configured(text: &str) -> Any {
    let value = Params { text: text.to_owned() }.encode_to_vec().into();
    Any { type_url: format!("type.googleapis.com/{}", Params::NAME), value }
}

struct Probe(String);

/// A text that is valid.
struct ProbeText(String);

impl Settings for ProbeText {
    type Params = Params;

    fn parse(params: Params, faults: &mut Faults<'_>) -> Option<Self> {
        faults
            .text("value", params.text)
            .must("not be invalid", |text| text != "invalid")
            .optional()
            .or(Some(String::new()))
            .map(Self)
    }
}

impl Adapter for Probe {
    const NAME: &str = "probe";
    const DESCRIPTION: &str = "Denies with its configuration for a reason.";
    type Config = ProbeText;
    type Templates = (CheckNothing,);

    async fn open(ProbeText(text): ProbeText, _: Context) -> Result<Self, AdapterError> {
        match &text[..] {
            "cannot open" => Err(AdapterError::new(Code::FailedPrecondition, "no room")),
            _ => Ok(Self(text)),
        }
    }
}

impl Handle<CheckNothing> for Probe {
    async fn handle(&self, _: Call<checknothing::InstanceMsg>) -> Result<Check, AdapterError> {
        match &self.0[..] {
            "not found" => Err(AdapterError::new(Code::NotFound, "no such row")),
            "aborted" => Err(AdapterError::new(Code::Aborted, "try, again: ü")),
            "slow" => std::future::pending().await,
            text => Ok(Check::deny(Code::PermissionDenied, text)),
        }
    }
}

/// The answer to a check: the reason of its denial.
pub(super) fn reason(answer: impl AsRef<[u8]>) -> String {
    CheckResult::decode(answer.as_ref()).unwrap().status.unwrap().message
}

/// The adapter on a port of its own.
pub(super) struct Running {
    pub(super) address: SocketAddr,
    port: Port,
    pub(super) host: Arc<Host>,
    stop: CancellationToken,
    served: JoinHandle<()>,
}

impl Running {
    pub(super) async fn start() -> Self {
        Self::on(port(), ServerOptions::default()).await
    }

    pub(super) async fn on(port: Port, options: ServerOptions) -> Self {
        let adapters = Adapters::builder(Runtime::current()).add::<Probe>().build().unwrap();
        let closing = Closing::on(Runtime::current());
        let host = Arc::new(Host::new(adapters, TableLimits::default(), closing));
        let options = options.grace(Duration::from_millis(100));
        let bound = Server::new(host.clone(), options).bind(port.address, None).await.unwrap();
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let served = tokio::spawn(async move { bound.run(&Workers::here(), stopped).await.unwrap() });
        Self { address: port.address, port, host, stop, served }
    }

    /// Stops it, sessions and all.
    pub(super) async fn stop(self) -> Port {
        self.stop.cancel();
        self.served.await.unwrap();
        self.port
    }

    /// Stops it and starts it again where it was, without its sessions.
    pub(super) async fn restart(self) -> Self {
        Self::on(self.stop().await, ServerOptions::default()).await
    }

    /// How many CreateSession calls have no CloseSession yet.
    pub(super) fn claims(&self) -> u64 {
        self.host.sessions().list(100).iter().map(|session| session.claims).sum()
    }
}
