//! Adapter configurations: from the author's config.proto to its descriptors and its Rust.

use std::path::{Path, PathBuf};

use prost_reflect::{FileDescriptor, Syntax};

use crate::{
    Error, descriptor_set,
    output::Output,
    refusal::{Reason, Refusals},
    rust,
    source::Source,
    source_info::path,
};

/// Packages whose Rust is in prost or in the framework.
const KNOWN_PACKAGES: [&str; 4] =
    ["google.protobuf", "google.rpc", "istio.policy.v1beta1", "istio.mixer.adapter.model.v1beta1"];

/// An adapter's configuration, read from its file and found good.
pub struct ConfigProto {
    file: FileDescriptor,
    inputs: Vec<PathBuf>,
}

impl ConfigProto {
    /// Reads a config.proto. All its faults are reported together.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let source = Source::open(path.as_ref())?;
        let file = &source.file;
        let mut refusals = Refusals::of(&source);
        if file.syntax() != Syntax::Proto3 {
            refusals.add(&[path::FILE_SYNTAX], Reason::NotProto3);
        }
        if file.package_name().is_empty() {
            refusals.add(&[], Reason::NoPackage);
        }
        if !file.messages().any(|message| message.name() == "Params") {
            refusals.add(&[], Reason::NoParams);
        }
        for (import, index) in file.dependencies().zip(0..) {
            for file in descriptor_set::with_imports(&import) {
                let package = file.package_name();
                if package != source.file.package_name() && !KNOWN_PACKAGES.contains(&package) {
                    let (import, package) = (file.name().to_owned(), package.to_owned());
                    refusals.add(&[path::FILE_DEPENDENCY, index], Reason::ForeignImport { import, package });
                }
            }
        }
        let config = Self { file: file.clone(), inputs: source.inputs() };
        refusals.or(Some(config))
    }

    /// The package, `adapter.list.config`.
    pub fn package(&self) -> &str {
        self.file.package_name()
    }

    /// The full name of the message, `adapter.list.config.Params`.
    pub fn message(&self) -> String {
        format!("{}.Params", self.package())
    }

    /// An encoded `FileDescriptorSet` with all imports: what the adapter resource of a real Mixer holds.
    pub fn descriptor_set(&self) -> Vec<u8> {
        descriptor_set::encode(descriptor_set::with_imports(&self.file))
    }

    /// The Rust of its messages, `Params` as the configuration of an adapter.
    pub fn rust(&self) -> Result<String, Error> {
        let messages = rust::package(self.package(), &descriptor_set::with_imports(&self.file))?;
        let (root, package, message) = (&*rust::ROOT, self.package(), self.message());
        Ok(rust::file(&format!(
            "{messages}
impl {root}::adapter::Config for Params {{
    const NAME: &'static str = \"{message}\";
    const DESCRIPTOR: &'static [u8] = include_bytes!(concat!(env!(\"OUT_DIR\"), \"/{package}.bin\"));
    const GENERATED: () = ();
}}
"
        )))
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
