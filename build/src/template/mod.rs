//! Templates: generates the handler service, its descriptors and its Rust from the author's template.proto.

mod collision;
mod declaration;
mod field;
mod model;
mod read;
mod service;
mod set_field;
mod variety;

use std::path::{Path, PathBuf};

use prost_reflect::FileDescriptor;

pub use variety::Variety;

use crate::{Error, comments, descriptor_set, output::Output, rust, source, source::Source};
use declaration::Declaration;
use model::Model;
use service::ServiceProto;

/// The imports that a real Mixer needs in the descriptor set of a template; it knows all others
/// (docs/behaviour/configuration.md#what-a-template-descriptor-needs).
const NEEDED_BY_MIXER: &str = "policy/v1beta1/";

/// A validated template.
///
/// Use this instead of [`template`](crate::template) to handle errors or to generate elsewhere than in a build script.
#[derive(Debug)]
pub struct Template {
    model: Model,
    service_proto: String,
    service: FileDescriptor,
    /// The files it was read from.
    pub(crate) inputs: Vec<PathBuf>,
}

impl Template {
    /// Reads and validates a template.proto.
    ///
    /// # Errors
    /// All faults of the file together.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let source = Source::open(path.as_ref())?;
        let model = read::read(&source)?;
        let proto = ServiceProto(&model);
        let service_proto = proto.to_string();
        let service = source::compile_text(&proto.file_name(), &service_proto)?;
        Ok(Self { model, service_proto, service, inputs: source.inputs() })
    }

    /// Returns the name in configuration, `listentry`.
    pub fn name(&self) -> &str {
        &self.model.name
    }

    /// Returns the name of its Rust type, `ListEntry`.
    pub fn interface(&self) -> &str {
        &self.model.interface
    }

    /// Returns the variety.
    pub fn variety(&self) -> Variety {
        self.model.variety
    }

    /// Returns the package of its messages, `listentry`.
    pub fn package(&self) -> &str {
        &self.model.package
    }

    /// Returns the handler service proto.
    pub fn service_proto(&self) -> &str {
        &self.service_proto
    }

    /// Returns the import path of the handler service proto.
    pub fn service_proto_name(&self) -> &str {
        self.service.name()
    }

    /// Encodes the `FileDescriptorSet` that a real Mixer needs.
    pub fn descriptor_set(&self) -> Vec<u8> {
        let files = descriptor_set::with_imports(&self.service);
        let needed =
            |file: &FileDescriptor| *file == self.service || file.name().starts_with(NEEDED_BY_MIXER);
        descriptor_set::encode(files.into_iter().filter(needed))
    }

    /// Lists the comments of its messages and fields: a line for each, with its full name, a tab and the comment.
    pub fn comments(&self) -> String {
        comments::list([self.service.clone()])
    }

    /// Generates the Rust of its messages and of the template.
    pub fn rust(&self) -> Result<String, Error> {
        let messages = rust::package(self.package(), &descriptor_set::with_imports(&self.service))?;
        let setters = set_field::generate(&messages);
        Ok(rust::file(self.package(), &format!("{messages}{setters}{}", Declaration(&self.model))))
    }

    /// Writes `<package>.rs`, `<package>.bin` and `<package>.comments`.
    pub(crate) fn write(&self, output: &Output) -> Result<(), Error> {
        output.write(&format!("{}.bin", self.package()), self.descriptor_set())?;
        output.write(&format!("{}.comments", self.package()), self.comments())?;
        output.write_package(self.package(), self.rust()?)
    }
}
