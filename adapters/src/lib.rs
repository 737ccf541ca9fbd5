//! The adapters that come with mixer-adapter, each in a folder of its own beside `src/`.

#[path = "../denier/mod.rs"]
pub mod denier;
#[path = "../memquota/mod.rs"]
pub mod memquota;
#[path = "../stdio/mod.rs"]
pub mod stdio;
#[path = "../list/mod.rs"]
pub mod list;
#[path = "../noop/mod.rs"]
pub mod noop;
