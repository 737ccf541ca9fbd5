//! Generation for the crates of the framework: their protos and the standard templates.

use std::{
    fs,
    path::{Path, PathBuf},
};

use prost_reflect::{DescriptorPool, FileDescriptor};
use prost_types::{DescriptorProto, field_descriptor_proto::Type};
use protox::file::ChainFileResolver;

use crate::{Error, comments, descriptor_set, output::Output, rust, source::compile, template::Template};

/// Files of `mixer-adapter-proto`, with their imports.
pub(crate) struct Protos<'a> {
    names: &'a [&'a str],
    /// The fields whose messages stay encoded, by full name.
    encoded: &'a [&'a str],
    pool: DescriptorPool,
}

impl<'a> Protos<'a> {
    /// Opens files. The messages in the fields `encoded` are not decoded.
    pub(crate) fn open(names: &'a [&'a str], encoded: &'a [&'a str]) -> Result<Self, Error> {
        let compiler = compile(ChainFileResolver::new(), names);
        let pool = compiler.map_err(|error| Error::compile(Path::new(""), &error))?.descriptor_pool();
        Ok(Self { names, encoded, pool })
    }

    /// Encodes a `FileDescriptorSet` of the files and their imports.
    pub(crate) fn descriptor_set(&self) -> Vec<u8> {
        descriptor_set::encode(self.pool.files())
    }

    /// Writes the files listed at [`crate::protos`].
    pub(crate) fn write(&self, output: &Output) -> Result<(), Error> {
        output.write("descriptors.bin", self.descriptor_set())?;
        let is_own = |file: &FileDescriptor| self.names.contains(&file.name());
        output.write("comments", comments::list(self.pool.files().filter(is_own)))?;
        // Imported files stay in the set, because the generator looks up their enums.
        let file = self.pool.files().map(|file| {
            let mut file = file.file_descriptor_proto().clone();
            comments::clean(&mut file);
            let package = file.package().to_owned();
            keep_encoded(&mut file.message_type, &package, self.encoded);
            file
        });
        let services = tonic_prost_build::configure().build_transport(false).service_generator();
        rust::importing_config(&self.pool, is_own)
            .service_generator(services)
            .bytes(self.encoded.iter().map(|field| format!(".{field}")))
            .out_dir(output.folder())
            .include_file("protos.rs")
            .compile_fds(prost_types::FileDescriptorSet { file: file.collect() })
            .map_err(Error::Rust)
    }
}

/// Gives fields of messages the type `bytes`, which is the same on the wire.
fn keep_encoded(messages: &mut [DescriptorProto], parent: &str, fields: &[&str]) {
    for message in messages {
        let name = format!("{parent}.{}", message.name());
        for field in &mut message.field {
            if fields.contains(&&*format!("{name}.{}", field.name())) {
                field.set_type(Type::Bytes);
                field.type_name = None;
            }
        }
        keep_encoded(&mut message.nested_type, &name, fields);
    }
}

/// The standard templates.
pub(crate) struct Templates {
    templates: Vec<Template>,
    /// The files they were read from.
    pub(crate) inputs: Vec<PathBuf>,
}

impl Templates {
    /// Reads the file `template.proto` in each folder of `folder`.
    pub(crate) fn open(folder: &Path) -> Result<Self, Error> {
        let unreadable = |source| Error::Read { path: folder.to_owned(), source };
        let mut inputs = Vec::new();
        for entry in fs::read_dir(folder).map_err(unreadable)? {
            let path = entry.map_err(unreadable)?.path().join("template.proto");
            if path.exists() {
                inputs.push(path);
            }
        }
        inputs.sort();
        let templates = inputs.iter().map(Template::open).collect::<Result<_, _>>()?;
        Ok(Self { templates, inputs })
    }

    /// Writes the files listed at [`crate::templates`].
    pub(crate) fn write(&self, output: &Output) -> Result<(), Error> {
        for template in &self.templates {
            template.write(output)?;
        }
        output.write("templates.rs", self.modules())
    }

    /// Generates a module for each template, re-exports of the templates, and a list of them.
    fn modules(&self) -> String {
        let root = &*rust::ROOT;
        let constant = |template: &Template, name| {
            format!("<{} as {root}::template::Template>::{name}", template.interface())
        };
        let entries = self.templates.iter().map(|template| {
            format!("({}, {}), ", constant(template, "NAME"), constant(template, "DESCRIPTOR"))
        });
        let comments = self.templates.iter().map(|template| constant(template, "COMMENTS") + ", ");
        let list = format!(
            "/// The name and the descriptor of each template.\n\
             pub const STANDARD: &[(&str, &[u8])] = &[{}];\n\
             /// The comments of each template, in the format of `Template::COMMENTS`.\n\
             pub const STANDARD_COMMENTS: &[&str] = &[{}];\n",
            entries.collect::<String>(),
            comments.collect::<String>()
        );
        let modules = self.templates.iter().map(|template| {
            let (name, package, interface) = (template.name(), template.package(), template.interface());
            format!(
                "/// The messages of the template `{name}`.\n\
                     pub mod {name} {{ include!(concat!(env!(\"OUT_DIR\"), \"/{package}.rs\")); }}\n\
                     pub use {name}::{interface};\n"
            )
        });
        modules.chain([list]).collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::imports::CORE;

    #[test]
    fn the_files_the_core_includes_are_written() {
        let folder = tempfile::tempdir().unwrap();
        Protos::open(CORE, &[]).unwrap().write(&Output::to(folder.path())).unwrap();
        let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();

        assert!(read("protos.rs").contains("include!(\"istio.mixer.adapter.model.v1beta1.rs\");"));
        let policy = read("istio.policy.v1beta1.rs");
        assert!(policy.contains("pub struct DirectHttpResponse") && !policy.contains("pub struct Value"));
    }

    #[test]
    fn the_files_the_crate_of_templates_includes_are_written() {
        let folder = tempfile::tempdir().unwrap();
        let templates = Templates::open(Path::new("../templates")).unwrap();
        templates.write(&Output::to(folder.path())).unwrap();
        let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();

        let modules = read("templates.rs");
        assert!(modules.contains("pub mod kubernetes { include!(concat!(env!(\"OUT_DIR\"), \"/adapter.template.kubernetes.rs\")); }"));
        assert!(modules.contains("pub use listentry::ListEntry;"));
        assert!(read("listentry.rs").contains("pub struct InstanceMsg"));
        assert!(fs::read(folder.path().join("listentry.bin")).unwrap().len() > 1000);
    }

    #[test]
    fn a_crate_above_the_core_generates_its_services_and_imports_messages_of_the_core() {
        let folder = tempfile::tempdir().unwrap();
        let protos = ["mixer/v1/mixer.proto", "mixer/adapter/model/v1beta1/infrastructure_backend.proto"];
        let names =
            [&protos[..], &["mixer/v1/attributes.proto", "mixer/v1/check.proto", "mixer/v1/report.proto"]];
        Protos::open(&names.concat(), &[]).unwrap().write(&Output::to(folder.path())).unwrap();
        let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();

        let model = read("istio.mixer.adapter.model.v1beta1.rs");
        assert!(model.contains("pub mod infrastructure_backend_server"));
        assert!(model.contains("pub mod infrastructure_backend_client"));
        assert!(read("istio.mixer.v1.rs").contains("::proto::google::rpc::Status"));
        assert!(!read("protos.rs").contains("google"));
        let pool =
            DescriptorPool::decode(&*fs::read(folder.path().join("descriptors.bin")).unwrap()).unwrap();
        assert!(pool.get_service_by_name("istio.mixer.v1.Mixer").is_some());
        assert!(pool.get_message_by_name("google.rpc.Status").is_some());
        assert!(pool.files().all(|file| file.file_descriptor_proto().source_code_info.is_none()));
    }
}
