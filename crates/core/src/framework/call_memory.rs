use std::fmt;

/// The share of one call in the memory of a server.
pub trait CallMemory: fmt::Debug + Send + Sync {
    /// Takes memory for the data that the call derives from its request, until it ends. Returns false if none is available.
    fn take(&self, bytes: usize) -> bool;
}
