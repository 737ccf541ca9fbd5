//! The adapters that come with mixer-adapter, each in a folder of its own beside `src/`.

#[path = "../denier/mod.rs"]
pub mod denier;
#[path = "../list/mod.rs"]
pub mod list;
#[path = "../noop/mod.rs"]
pub mod noop;
#[path = "../prometheus/mod.rs"]
pub mod prometheus;
