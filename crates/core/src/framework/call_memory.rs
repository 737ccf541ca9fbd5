use std::fmt;

/// The memory that one call takes of what a server has for its clients.
pub trait CallMemory: fmt::Debug + Send + Sync {
    /// Takes memory for what the call makes of its request, until the call ends. Returns false if the server has none left for it.
    fn take(&self, bytes: usize) -> bool;
}
