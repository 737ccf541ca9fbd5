//! Generation of Rust with prost.

use std::sync::LazyLock;

use proc_macro_crate::{FoundCrate, crate_name};
use prost_build::{Config, Module};
use prost_reflect::{DescriptorPool, FileDescriptor, MessageDescriptor};

use crate::{Error, comments};

/// The path of the crate that generated code refers to: `mixer-adapter-core`, or else the facade `mixer-adapter`. Its
/// name comes from the Cargo.toml of the crate being built.
pub(crate) static ROOT: LazyLock<String> = LazyLock::new(|| {
    match framework() {
        Ok(FoundCrate::Name(name)) => format!("::{name}"),
        // Only the core generates code for itself, and it has an alias by `extern crate self`.
        Ok(FoundCrate::Itself) => "::mixer_adapter_core".to_owned(),
        Err(_) => "::mixer_adapter".to_owned(),
    }
});

fn framework() -> Result<FoundCrate, proc_macro_crate::Error> {
    crate_name("mixer-adapter-core").or_else(|_| crate_name("mixer-adapter"))
}

/// Returns an error if the crate being built depends on neither of the crates of [`ROOT`].
pub(crate) fn check_dependencies() -> Result<(), Error> {
    framework().map(drop).map_err(|_| Error::NoFramework)
}

/// Messages that are implemented by hand in the core's module `value`.
const VALUES: &[(&str, &str)] = &[
    ("Value", "Value"),
    ("IPAddress", "IpAddress"),
    ("TimeStamp", "TimeStamp"),
    ("Duration", "Duration"),
    ("DNSName", "DnsName"),
    ("EmailAddress", "EmailAddress"),
    ("Uri", "Uri"),
    ("StringMap", "StringMap"),
];

/// Messages and packages with Rust types in the core, for code generated outside of the framework.
const FRAMEWORK: &[(&str, &str)] = &[
    (".google.rpc.Status", "Status"),
    (".istio.mixer.adapter.model.v1beta1", "istio::mixer::adapter::model::v1beta1"),
    (".istio.policy.v1beta1", "istio::policy::v1beta1"),
];

/// Returns the settings of all generated code. It refers to other crates only through [`ROOT`].
pub(crate) fn framework_config() -> Config {
    let root = &*ROOT;
    let mut config = Config::new();
    config
        .prost_path(format!("{root}::prost"))
        .prost_types_path(format!("{root}::prost_types"))
        .btree_map(["."])
        .enable_type_names()
        .type_name_domain(["."], "type.googleapis.com")
        .extern_path(".google.protobuf.Any", format!("{root}::proto::Any"));
    for (proto, rust) in VALUES {
        config.extern_path(format!(".istio.policy.v1beta1.{proto}"), format!("{root}::value::{rust}"));
    }
    config
}

/// Returns the settings for a crate above the core, which imports the messages of files that are not its own.
pub(crate) fn importing_config(pool: &DescriptorPool, is_own: impl Fn(&FileDescriptor) -> bool) -> Config {
    let mut config = framework_config();
    let imported =
        pool.files().filter(|file| !is_own(file) && !file.package_name().starts_with("google.protobuf"));
    for file in imported {
        let module =
            file.package_name().split('.').fold(format!("{}::proto", *ROOT), |path, part| path + "::" + part);
        for message in file.messages() {
            extern_message(&mut config, &message, &module);
        }
        for message in file.enums() {
            extern_path(&mut config, message.full_name(), format!("{module}::{}", message.name()));
        }
    }
    config
}

fn extern_message(config: &mut Config, message: &MessageDescriptor, module: &str) {
    extern_path(config, message.full_name(), format!("{module}::{}", message.name()));
    let module = format!("{module}::{}", snake_case(message.name()));
    message.child_messages().for_each(|child| extern_message(config, &child, &module));
    message
        .child_enums()
        .for_each(|child| extern_path(config, child.full_name(), format!("{module}::{}", child.name())));
}

fn extern_path(config: &mut Config, proto: &str, rust: String) {
    // A path can be set only once, and `framework_config` sets the paths of values.
    let name = proto.strip_prefix("istio.policy.v1beta1.");
    if !VALUES.iter().any(|(value, _)| Some(*value) == name) {
        config.extern_path(format!(".{proto}"), rust);
    }
}

/// Returns the name of a message's module as prost writes it: `quota_request` for `QuotaRequest`.
fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.extend(letter.to_lowercase());
    }
    snake
}

/// Returns the settings for code outside of the framework, which uses the generated types of the core.
pub(crate) fn author_config() -> Config {
    let mut config = framework_config();
    // prost's Debug of a map refers to the crate `prost`, which authors do not depend on.
    config.skip_debug(["."]).type_attribute(".", "#[derive(Debug)]");
    for (proto, rust) in FRAMEWORK {
        config.extern_path(*proto, format!("{}::proto::{rust}", *ROOT));
    }
    config
}

/// Generates the Rust of one package. `files` contains the package and its imports.
pub(crate) fn package(package: &str, files: &[FileDescriptor]) -> Result<String, Error> {
    let requests = files.iter().map(|file| {
        let mut file = file.file_descriptor_proto().clone();
        comments::clean(&mut file);
        (Module::from_protobuf_package_name(file.package()), file)
    });
    let mut modules = author_config().generate(requests.collect()).map_err(Error::Rust)?;
    Ok(modules.remove(&Module::from_protobuf_package_name(package)).unwrap_or_default())
}

/// Wraps the code of a package into a file to include, without the lints of the including crate. A module can include several packages.
pub(crate) fn file(package: &str, code: &str) -> String {
    let module = format!("generated_{}", package.replace('.', "_"));
    format!(
        "#[allow(clippy::all, clippy::pedantic, dead_code, missing_docs, unreachable_pub, unused_variables, rustdoc::all)]\n\
         mod {module} {{\n{code}}}\n#[allow(unused_imports, unreachable_pub)]\npub use {module}::*;\n"
    )
}
