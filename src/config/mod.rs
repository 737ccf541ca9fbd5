//! Where configuration comes from.

pub mod mcp;
