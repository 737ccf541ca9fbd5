//! The adapters that come with mixer-adapter, each in a folder of its own beside `src/`.

#[path = "../denier/mod.rs"]
pub mod denier;
#[path = "../list/mod.rs"]
pub mod list;
#[path = "../memquota/mod.rs"]
pub mod memquota;
#[path = "../noop/mod.rs"]
pub mod noop;
#[path = "../prometheus/mod.rs"]
pub mod prometheus;
#[path = "../stdio/mod.rs"]
pub mod stdio;
