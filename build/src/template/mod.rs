//! Templates: from the author's template.proto to the handler service, its descriptors and its Rust.

mod collision;
mod declaration;
mod field;
mod model;
mod read;
mod service;
mod variety;

use std::path::{Path, PathBuf};

use prost_reflect::FileDescriptor;

pub use variety::Variety;

use crate::{Error, descriptor_set, output::Output, rust, source, source::Source};
use declaration::Declaration;
use model::Model;
use service::ServiceProto;

/// The protos of a template's descriptor set a real Mixer wants to see; everything else it knows
/// (docs/behaviour/configuration.md#what-a-template-descriptor-needs).
const NEEDED_BY_MIXER: &str = "policy/v1beta1/";

/// A template, read from its file and found good.
pub struct Template {
    model: Model,
    service_proto: String,
    service: FileDescriptor,
    inputs: Vec<PathBuf>,
}

impl Template {
    /// Reads a template.proto. All its faults are reported together.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let source = Source::open(path.as_ref())?;
        let model = read::read(&source)?;
        let proto = ServiceProto(&model);
        let service_proto = proto.to_string();
        let service = source::compile_text(&proto.file_name(), &service_proto)?;
        Ok(Self { model, service_proto, service, inputs: source.inputs() })
    }

    /// The name in configuration, `listentry`.
    pub fn name(&self) -> &str {
        &self.model.name
    }

    /// What its Rust type is called, `ListEntry`.
    pub fn interface(&self) -> &str {
        &self.model.interface
    }

    /// When adapters are called.
    pub fn variety(&self) -> Variety {
        self.model.variety
    }

    /// The package of its messages, `listentry`.
    pub fn package(&self) -> &str {
        &self.model.package
    }

    /// The text of the handler service proto.
    pub fn service_proto(&self) -> &str {
        &self.service_proto
    }

    /// The name of the handler service proto, as others would import it.
    pub fn service_proto_name(&self) -> &str {
        self.service.name()
    }

    /// An encoded `FileDescriptorSet` with what a real Mixer needs to know of the template.
    pub fn descriptor_set(&self) -> Vec<u8> {
        let files = descriptor_set::with_imports(&self.service);
        let needed =
            |file: &FileDescriptor| *file == self.service || file.name().starts_with(NEEDED_BY_MIXER);
        descriptor_set::encode(files.into_iter().filter(needed))
    }

    /// The Rust of its messages, and the call that makes a template of them.
    pub fn rust(&self) -> Result<String, Error> {
        let messages = rust::package(self.package(), &descriptor_set::with_imports(&self.service))?;
        Ok(rust::file(&format!("{messages}{}", Declaration(&self.model))))
    }

    /// The files it was read from.
    pub(crate) fn inputs(&self) -> &[PathBuf] {
        &self.inputs
    }

    /// Writes `<package>.rs` and `<package>.bin`.
    pub(crate) fn write(&self, output: &Output) -> Result<(), Error> {
        output.write(&format!("{}.bin", self.package()), self.descriptor_set())?;
        output.write(&format!("{}.rs", self.package()), self.rust()?)
    }
}
