//! Lines of the log about calls, whose number and texts clients decide.
//!
//! Handlers log with the crate `tracing`, which [`warn_limited!`] expects in the crate of its caller:
//!
//! ```
//! use mixer_adapter_core::log::{log_text, warn_limited};
//!
//! fn lost(error: &std::io::Error) {
//!     warn_limited!(error = log_text(error), "the directory did not answer");
//! }
//! ```

#[doc(inline)]
pub use crate::framework::{
    log_limit::{LogLimit, warn_limited},
    log_text::log_text,
};
