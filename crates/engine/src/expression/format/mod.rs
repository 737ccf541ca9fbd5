//! The texts that functions read: names, addresses, times and patterns (mixer-runtime.md, section 1.3).

pub(crate) mod dns;
pub(crate) mod email;
pub(crate) mod pattern;
pub(crate) mod timestamp;
pub(crate) mod uri;
