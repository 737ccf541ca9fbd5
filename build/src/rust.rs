//! Rust of protos, by prost.

use prost_build::{Config, Module};
use prost_reflect::FileDescriptor;

use crate::{Error, comments};

/// Values of attributes are written by hand in `mixer_adapter::value`.
const VALUES: &[(&str, &str)] = &[
    ("Value", "Value"),
    ("ValueType", "ValueType"),
    ("IPAddress", "IpAddress"),
    ("TimeStamp", "TimeStamp"),
    ("Duration", "Duration"),
    ("DNSName", "DnsName"),
    ("EmailAddress", "EmailAddress"),
    ("Uri", "Uri"),
    ("StringMap", "StringMap"),
];

/// Packages the framework has generated, for code generated outside of it.
const FRAMEWORK: &[(&str, &str)] = &[
    (".google.rpc.Status", "Status"),
    (".istio.mixer.adapter.model.v1beta1", "istio::mixer::adapter::model::v1beta1"),
    (".istio.policy.v1beta1", "istio::policy::v1beta1"),
];

/// What all generated code has in common: everything it needs is reached through `::mixer_adapter`.
pub(crate) fn framework_config() -> Config {
    let mut config = Config::new();
    config
        .prost_path("::mixer_adapter::prost")
        .prost_types_path("::mixer_adapter::prost_types")
        .btree_map(["."])
        .enable_type_names()
        .type_name_domain(["."], "type.googleapis.com")
        .extern_path(".google.protobuf.Any", "::mixer_adapter::proto::Any");
    for (proto, rust) in VALUES {
        config
            .extern_path(format!(".istio.policy.v1beta1.{proto}"), format!("::mixer_adapter::value::{rust}"));
    }
    config
}

/// For code outside the framework: what the framework has generated is used, not generated again.
pub(crate) fn author_config() -> Config {
    let mut config = framework_config();
    // Prost's own Debug of a map names the crate `prost`, which authors do not depend on.
    config.skip_debug(["."]).type_attribute(".", "#[derive(Debug)]");
    for (proto, rust) in FRAMEWORK {
        config.extern_path(*proto, format!("::mixer_adapter::proto::{rust}"));
    }
    config
}

/// The Rust of one package. `files` hold all it refers to.
pub(crate) fn package(package: &str, files: &[FileDescriptor]) -> Result<String, Error> {
    let requests = files.iter().map(|file| {
        let mut file = file.file_descriptor_proto().clone();
        comments::clean(&mut file);
        (Module::from_protobuf_package_name(file.package()), file)
    });
    let mut modules = author_config().generate(requests.collect()).map_err(Error::Rust)?;
    Ok(modules.remove(&Module::from_protobuf_package_name(package)).unwrap_or_default())
}

/// A file to include: generated code is not held to the lints of the crate around it.
pub(crate) fn file(code: &str) -> String {
    format!(
        "#[allow(clippy::all, clippy::pedantic, dead_code, missing_docs, unreachable_pub, rustdoc::all)]\n\
         mod generated {{\n{code}}}\n#[allow(unused_imports, unreachable_pub)]\npub use generated::*;\n"
    )
}
