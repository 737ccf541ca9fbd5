//! The code generator of mixer-adapter, for build scripts of adapters. It is pure Rust and does not need protoc.
//!
//! # Configurations
//!
//! An adapter's configuration is the message `Params` of a proto file. In build.rs:
//!
//! ```no_run
//! // fn main() of build.rs
//! mixer_adapter_build::adapter("config.proto");
//! ```
//!
//! In the adapter, for a config.proto of package `adapter.denylist.config`:
//!
//! ```text
//! mod config {
//!     mixer_adapter::include_proto!("adapter.denylist.config");
//! }
//! use config::Params;
//! ```
//!
//! Generated code refers to `mixer-adapter-core` or to `mixer-adapter`, whichever the author's Cargo.toml has among its
//! dependencies (the former if both), and under the name that it has there:
//!
//! | in Cargo.toml | generated code uses |
//! |---|---|
//! | `mixer-adapter-core = "0.1"` | `::mixer_adapter_core` |
//! | `mixer-adapter = "0.1"` | `::mixer_adapter` |
//! | `mixer = { package = "mixer-adapter-core", version = "0.1" }` | `::mixer` |
//!
//! # Templates
//!
//! The standard templates are in the crate `mixer-adapter-templates`, and in programs in `mixer_adapter::template`. A template of an author's own is a file with the message
//! `Template`, whose fields are the input of adapters:
//!
//! ```proto
//! syntax = "proto3";
//! package tagCheck;
//! import "mixer/adapter/model/v1beta1/extensions.proto";
//! import "policy/v1beta1/type.proto";
//! option (istio.mixer.adapter.model.v1beta1.template_variety) = TEMPLATE_VARIETY_CHECK;
//!
//! // Tags to check.
//! message Template {
//!   string subject = 1;
//!   map<string, istio.policy.v1beta1.Value> tags = 2;
//! }
//! ```
//!
//! [`template`] generates the service `HandleTagCheckService` and its messages in the package `tagcheck`, as `mixgen api`
//! does, and the Rust type `TagCheck`, which implements `mixer_adapter::template::Template`. To include them:
//!
//! ```text
//! mod tagcheck {
//!     mixer_adapter::include_proto!("tagcheck");
//! }
//! use tagcheck::TagCheck;
//! ```
//!
//! The names derive from the option template_name, or else from the last part of the package. The types of fields are
//! string, int64, double, bool, the messages of policy/v1beta1/type.proto except `StringMap`, messages of the file,
//! which can be repeated, and maps of these with string keys. A template of variety ATTRIBUTE_GENERATOR or
//! CHECK_WITH_OUTPUT also has the message `OutputTemplate`, whose fields become attributes: without `Value`, messages
//! and repeated fields, and with maps of strings only. [`SchemaError`] lists the rejected schemas, and the rules that
//! are stricter than mixgen's.

mod comments;
mod config;
mod descriptor_set;
mod error;
mod framework;
mod imports;
mod output;
mod rust;
mod schema_error;
mod schema_errors;
mod source;
mod source_info;
mod template;

use std::{
    path::{Path, PathBuf},
    process,
};

pub use config::ConfigProto;
pub use error::Error;
#[doc(hidden)]
pub use imports::CORE;
pub use schema_error::{ProtoError, SchemaError};
pub use template::{Template, Variety};

use framework::{Protos, Templates};
use output::Output;
use prost_reflect::DescriptorPool;
use protox::file::{ChainFileResolver, IncludeFileResolver};

/// Generates an adapter's configuration: `<package>.rs` and `<package>.bin` in `OUT_DIR`.
///
/// The file can import files of the same package in its folder, `google/protobuf/*` and `policy/v1beta1/type.proto`. If it
/// is not valid, the build script ends with all faults; use [`ConfigProto`] to handle the error.
pub fn adapter(config_proto: impl AsRef<Path>) {
    finish(|| {
        rust::check_dependencies()?;
        let config = ConfigProto::open(config_proto)?;
        rerun_if_changed(&config.inputs);
        config.write(&Output::of_build_script()?)
    });
}

/// Generates a template: `<package in lower case>.rs` and `.bin` in `OUT_DIR`.
///
/// If the file is not valid, the build script ends with all faults; use [`Template`] to handle the error.
pub fn template(template_proto: impl AsRef<Path>) {
    finish(|| {
        rust::check_dependencies()?;
        let template = Template::open(template_proto)?;
        rerun_if_changed(&template.inputs);
        template.write(&Output::of_build_script()?)
    });
}

/// Compiles files, given by their paths below a folder, and returns them with their imports and comments.
///
/// They can import files of the folders, files of `mixer-adapter-proto` and `google/protobuf/*`.
///
/// # Errors
/// A file is missing or not valid; the text contains file, line, column and reason.
pub fn compile<N: AsRef<Path>>(folders: &[PathBuf], names: &[N]) -> Result<DescriptorPool, Error> {
    let mut files = ChainFileResolver::new();
    for folder in folders {
        files.add(IncludeFileResolver::new(folder.clone()));
    }
    let folder = folders.first().map_or(Path::new(""), PathBuf::as_path);
    match source::compile(files, names) {
        Ok(compiler) => Ok(compiler.descriptor_pool()),
        Err(error) => Err(Error::compile(folder, &error)),
    }
}

/// Generates files of `mixer-adapter-proto`, given by their import paths, in `OUT_DIR`:
/// - `protos.rs`, their messages and services, as modules by package; imports of other files refer to the core,
/// - `descriptors.bin`, as [`descriptors`] writes it,
/// - `comments`, the comments of their messages, fields, enums and values: a line for each, with its full name, a tab and the comment.
#[doc(hidden)]
pub fn protos(names: &[&str]) {
    protos_with_encoded(names, &[]);
}

/// Generates files as [`protos`] does. The messages in the fields `encoded`, given by their full names such as `package.Message.headers`,
/// stay encoded in `Bytes`: decoding does not copy them. Entries of maps are in the order of the wire, and keys can repeat.
#[doc(hidden)]
pub fn protos_with_encoded(names: &[&str], encoded: &[&str]) {
    finish(|| {
        rerun_if_changed(&["build.rs".into()]);
        Protos::open(names, encoded)?.write(&Output::of_build_script()?)
    });
}

/// Writes `file` in `OUT_DIR`: an encoded `FileDescriptorSet` of files of `mixer-adapter-proto`, given by their import
/// paths, with their imports.
#[doc(hidden)]
pub fn descriptors(file: &str, names: &[&str]) {
    finish(|| Output::of_build_script()?.write(file, Protos::open(names, &[])?.descriptor_set()))
}

/// Generates the templates `NAME/template.proto` of a folder in `OUT_DIR`:
/// - `templates.rs`, with a module for each, and their names, descriptors and comments.
#[doc(hidden)]
pub fn templates(folder: impl AsRef<Path>) {
    finish(|| {
        let templates = Templates::open(folder.as_ref())?;
        rerun_if_changed(&templates.inputs);
        templates.write(&Output::of_build_script()?)
    });
}

#[expect(clippy::print_stdout, reason = "instructions to cargo")]
fn rerun_if_changed(inputs: &[PathBuf]) {
    for input in inputs {
        println!("cargo::rerun-if-changed={}", input.display());
    }
}

#[expect(
    clippy::print_stdout,
    clippy::exit,
    clippy::disallowed_methods,
    reason = "ends the build script, which owns nothing by now"
)]
fn finish(generate: impl FnOnce() -> Result<(), Error>) {
    if let Err(error) = generate() {
        for line in error.to_string().lines() {
            println!("cargo::error={line}");
        }
        process::exit(1);
    }
}
