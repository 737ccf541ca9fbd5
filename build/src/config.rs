//! Adapter configurations: generates descriptors and Rust from the author's config.proto.

use std::path::{Path, PathBuf};

use prost_reflect::{FileDescriptor, Syntax};

use crate::{
    Error, comments, descriptor_set, imports::CORE, output::Output, rust, schema_error::SchemaError,
    schema_errors::SchemaErrors, source::Source, source_info::path,
};

/// A validated adapter configuration.
///
/// Use this instead of [`adapter`](crate::adapter) to handle errors or to generate elsewhere than in a build script.
#[derive(Debug)]
pub struct ConfigProto {
    file: FileDescriptor,
    /// The files it was read from.
    pub(crate) inputs: Vec<PathBuf>,
}

impl ConfigProto {
    /// Reads and validates a config.proto.
    ///
    /// # Errors
    /// All faults of the file together.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let source = Source::open(path.as_ref())?;
        let file = &source.file;
        let mut errors = SchemaErrors::of(&source);
        if file.syntax() != Syntax::Proto3 {
            errors.add(&[path::FILE_SYNTAX], SchemaError::NotProto3);
        }
        if file.package_name().is_empty() {
            errors.add(&[], SchemaError::NoPackage);
        }
        if !file.messages().any(|message| message.name() == "Params") {
            errors.add(&[], SchemaError::NoParams);
        }
        for (import, index) in file.dependencies().zip(0..) {
            for file in descriptor_set::with_imports(&import) {
                let (import, package) = (file.name(), file.package_name());
                let has_types = package == source.file.package_name()
                    || package == "google.protobuf"
                    || CORE.contains(&import);
                if !has_types {
                    let (import, package) = (import.to_owned(), package.to_owned());
                    errors
                        .add(&[path::FILE_DEPENDENCY, index], SchemaError::ForeignImport { import, package });
                }
            }
        }
        let config = Self { file: file.clone(), inputs: source.inputs() };
        errors.or(Some(config))
    }

    /// Returns the package, `adapter.list.config`.
    pub fn package(&self) -> &str {
        self.file.package_name()
    }

    /// Returns the full name of the message, `adapter.list.config.Params`.
    pub fn message(&self) -> String {
        format!("{}.Params", self.package())
    }

    /// Encodes the `FileDescriptorSet` with all imports, as in the adapter resource of a real Mixer.
    pub fn descriptor_set(&self) -> Vec<u8> {
        descriptor_set::encode(descriptor_set::with_imports(&self.file))
    }

    /// Lists the comments of its messages, fields, enums and their values: a line for each, with its full name, a tab and the comment.
    pub fn comments(&self) -> String {
        comments::list(descriptor_set::with_imports(&self.file))
    }

    /// Generates the Rust of its messages and the implementation of `Config` for `Params`.
    pub fn rust(&self) -> Result<String, Error> {
        let messages = rust::package(self.package(), &descriptor_set::with_imports(&self.file))?;
        let (root, package, message) = (&*rust::ROOT, self.package(), self.message());
        Ok(rust::file(
            package,
            &format!(
                "{messages}
impl {root}::adapter::Config for Params {{
    const NAME: &'static str = \"{message}\";
    const DESCRIPTOR: &'static [u8] = include_bytes!(concat!(env!(\"OUT_DIR\"), \"/{package}.bin\"));
    const COMMENTS: &'static str = include_str!(concat!(env!(\"OUT_DIR\"), \"/{package}.comments\"));
    const GENERATED: () = ();
}}
"
            ),
        ))
    }

    /// Writes `<package>.rs`, `<package>.bin` and `<package>.comments`.
    pub(crate) fn write(&self, output: &Output) -> Result<(), Error> {
        output.write(&format!("{}.bin", self.package()), self.descriptor_set())?;
        output.write(&format!("{}.comments", self.package()), self.comments())?;
        output.write_package(self.package(), self.rust()?)
    }
}
