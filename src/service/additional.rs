use tonic::service::Routes;

use super::rpc::Rpc;

/// Services of a server in addition to those of its adapters and the Mixer API.
pub(super) struct AdditionalServices {
    /// The full names.
    pub(super) names: Vec<&'static str>,
    /// The unary methods by path.
    pub(super) rpcs: Vec<(&'static str, Rpc)>,
    /// Adds the other methods.
    pub(super) routes: Box<dyn FnOnce(Routes) -> Routes + Send>,
    /// An encoded `FileDescriptorSet` for reflection.
    pub(super) descriptors: &'static [u8],
}
