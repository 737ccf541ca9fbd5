//! The code generator of mixer-adapter, for the build.rs of adapters. Pure Rust: no protoc is needed.
//!
//! An adapter's configuration is the message `Params` of a proto of its own. In build.rs:
//!
//! ```no_run
//! // fn main() of build.rs
//! mixer_adapter_build::adapter("config.proto");
//! ```
//!
//! and in the adapter, for a config.proto of package `adapter.denylist.config`:
//!
//! ```text
//! mod config {
//!     mixer_adapter::include_proto!("adapter.denylist.config");
//! }
//! use config::Params;
//! ```
//!
//! # Templates
//!
//! The standard templates are part of `mixer_adapter`. One of an author's own is a file with the message `Template`, its
//! fields being what adapters are handed:
//!
//! ```proto
//! syntax = "proto3";
//! package tagCheck;
//! import "mixer/adapter/model/v1beta1/extensions.proto";
//! import "policy/v1beta1/type.proto";
//! option (istio.mixer.adapter.model.v1beta1.template_variety) = TEMPLATE_VARIETY_CHECK;
//!
//! // Tags to look at.
//! message Template {
//!   string subject = 1;
//!   map<string, istio.policy.v1beta1.Value> tags = 2;
//! }
//! ```
//!
//! [`template`] generates from it what `mixgen api` does: the service `HandleTagCheckService` with its messages, in the
//! package `tagcheck`; and beyond that the Rust type `TagCheck`, a `mixer_adapter::template::Template`. To include it:
//!
//! ```text
//! mod tagcheck {
//!     mixer_adapter::include_proto!("tagcheck");
//! }
//! use tagcheck::TagCheck;
//! ```
//!
//! The last part of the package gives the names, or the option template_name. Fields can be string, int64, double, bool,
//! the types of policy/v1beta1/type.proto but `StringMap`, messages of the file, which may also be repeated, and maps of
//! these by string keys. A template of variety ATTRIBUTE_GENERATOR or CHECK_WITH_OUTPUT also has the message
//! `OutputTemplate`, whose fields become attributes: no `Value`, no messages, nothing repeated, and maps of strings only.
//! [`Reason`] lists all that is refused, and where this is stricter than mixgen.

mod comments;
mod config;
mod descriptor_set;
mod embedded;
mod error;
mod framework;
mod output;
mod refusal;
mod rust;
mod source;
mod source_info;
mod template;

use std::{
    path::{Path, PathBuf},
    process,
};

pub use config::ConfigProto;
pub use error::Error;
pub use refusal::{Reason, Refusal};
pub use template::{Template, Variety};

use framework::{Core, Protos};
use output::Output;

/// Generates an adapter's configuration: `<package>.rs` and `<package>.bin` in `OUT_DIR`.
///
/// The file may import files beside it that are of the same package, `google/protobuf/*` and `policy/v1beta1/type.proto`.
/// Ends the build script with a readable message if something is wrong with it; [`ConfigProto`] is for those who want the
/// error instead.
pub fn adapter(config_proto: impl AsRef<Path>) {
    finish(|| {
        let config = ConfigProto::open(config_proto)?;
        rerun_if_changed(config.inputs());
        config.write(&Output::of_build_script()?)
    });
}

/// Generates a template: `<package in lower case>.rs` and `.bin` in `OUT_DIR`.
///
/// Ends the build script with a readable message if something is wrong with it; [`Template`] is for those who want the
/// error instead.
pub fn template(template_proto: impl AsRef<Path>) {
    finish(|| {
        let template = Template::open(template_proto)?;
        rerun_if_changed(template.inputs());
        template.write(&Output::of_build_script()?)
    });
}

/// For the build.rs of `mixer-adapter-core`. Generates, in `OUT_DIR`:
/// - `protos.rs`, the protos of the first folder and those templates import, as modules by package,
/// - `templates.rs`, a module for each template of the second folder, and the templates themselves,
/// - `descriptors.bin`, an encoded `FileDescriptorSet` of everything.
#[doc(hidden)]
pub fn core(protos: impl AsRef<Path>, templates: impl AsRef<Path>) {
    let (protos, templates) = (protos.as_ref(), templates.as_ref());
    finish(|| {
        rerun_if_changed(&[protos.to_owned(), templates.to_owned()]);
        Core::open(protos, templates)?.write(&Output::of_build_script()?)
    });
}

/// For the build.rs of a crate above `mixer-adapter-core`. Generates, in `OUT_DIR`:
/// - `protos.rs`, the messages and services of a folder's protos, as modules by package; what they import is the core's,
/// - `descriptors.bin`, an encoded `FileDescriptorSet` of them and of what they import.
#[doc(hidden)]
pub fn protos(folder: impl AsRef<Path>) {
    let folder = folder.as_ref();
    finish(|| {
        rerun_if_changed(&[folder.to_owned()]);
        Protos::open(folder)?.write(&Output::of_build_script()?)
    });
}

fn rerun_if_changed(inputs: &[PathBuf]) {
    for input in inputs {
        println!("cargo::rerun-if-changed={}", input.display());
    }
}

fn finish(generate: impl FnOnce() -> Result<(), Error>) {
    if let Err(error) = generate() {
        for line in error.to_string().lines() {
            println!("cargo::error={line}");
        }
        process::exit(1);
    }
}
