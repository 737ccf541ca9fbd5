//! Information about the build.

/// The version of this package.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The commit, if the build was a release build from a checkout; `-modified` if it differed.
pub(crate) const COMMIT: &str = env!("BUILD_COMMIT");
/// `release` or `debug`.
pub(crate) const PROFILE: &str = env!("BUILD_PROFILE");
/// The target triple.
pub(crate) const TARGET: &str = env!("BUILD_TARGET");
/// The version of rustc.
pub(crate) const COMPILER: &str = env!("BUILD_COMPILER");

/// The optional features of the build.
pub(crate) fn features() -> Vec<&'static str> {
    let features = [
        ("cel", cfg!(feature = "cel")),
        ("envoy", cfg!(feature = "envoy")),
        ("proto", cfg!(feature = "proto")),
        ("tls", cfg!(feature = "tls")),
    ];
    features.iter().filter(|(_, enabled)| *enabled).map(|(name, _)| *name).collect()
}
