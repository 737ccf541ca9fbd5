//! The adapters that come with mixer-adapter, each in a folder of its own beside `src/`.

#[path = "../denier/mod.rs"]
pub mod denier;
#[path = "../noop/mod.rs"]
pub mod noop;
