//! Generation for the crates of the framework: their protos and the standard templates.

use std::{
    fs,
    path::{Path, PathBuf},
};

use prost_reflect::{DescriptorPool, FileDescriptor};
use protox::file::{ChainFileResolver, IncludeFileResolver};

use crate::{
    Error, comments, descriptor_set,
    embedded::{self, InMemory},
    output::Output,
    rust,
    source::compile,
    template::Template,
};

/// The protos and templates of `mixer-adapter-core`.
pub(crate) struct Core {
    templates: Vec<Template>,
    pool: DescriptorPool,
}

impl Core {
    pub(crate) fn open(protos: &Path, templates: &Path) -> Result<Self, Error> {
        let templates = files_below(templates)?.iter().map(Template::open).collect::<Result<Vec<_>, _>>()?;
        let services = templates
            .iter()
            .map(|template| (template.service_proto_name().to_owned(), template.service_proto().to_owned()))
            .collect::<Vec<_>>();
        let mut names: Vec<PathBuf> = embedded::names().map(PathBuf::from).collect();
        names.extend(files_below(protos)?.iter().map(|path| relative(path, protos)));
        names.extend(services.iter().map(|(name, _)| PathBuf::from(name)));

        let mut files = ChainFileResolver::new();
        files.add(IncludeFileResolver::new(protos.to_owned()));
        files.add(InMemory(services));
        let pool = compile(files, names).map_err(|error| Error::compile(protos, &error))?.descriptor_pool();
        Ok(Self { templates, pool })
    }

    /// Encodes a `FileDescriptorSet` of everything, for reflection.
    pub(crate) fn descriptor_set(&self) -> Vec<u8> {
        descriptor_set::encode(self.pool.files())
    }

    /// Writes the files listed at [`crate::core`].
    pub(crate) fn write(&self, output: &Output) -> Result<(), Error> {
        output.write("descriptors.bin", self.descriptor_set())?;
        for template in &self.templates {
            template.write(output)?;
        }
        output.write("templates.rs", self.modules())?;

        let is_template =
            |file: &FileDescriptor| self.templates.iter().any(|t| t.service_proto_name() == file.name());
        let file = self.pool.files().filter(|file| !is_template(file)).map(|file| {
            let mut file = file.file_descriptor_proto().clone();
            comments::clean(&mut file);
            file
        });
        rust::framework_config()
            .out_dir(output.folder())
            .include_file("protos.rs")
            .compile_fds(prost_types::FileDescriptorSet { file: file.collect() })
            .map_err(Error::Rust)
    }

    /// Generates a module for each template, re-exports of the templates, and a list of them.
    fn modules(&self) -> String {
        let entries = self.templates.iter().map(|template| {
            let interface = template.interface();
            format!("(<{interface} as crate::template::Template>::NAME, <{interface} as crate::template::Template>::DESCRIPTOR), ")
        });
        let comments = self
            .templates
            .iter()
            .map(|template| format!("<{} as crate::template::Template>::COMMENTS, ", template.interface()));
        let list = format!(
            "/// The name and the descriptor of each standard template and of `kubernetes`.\n\
             #[doc(hidden)]\n\
             pub const STANDARD: &[(&str, &[u8])] = &[{}];\n\
             /// Their comments.\n\
             #[doc(hidden)]\n\
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

/// The protos of a crate above `mixer-adapter-core`.
pub(crate) struct Protos {
    names: Vec<PathBuf>,
    pool: DescriptorPool,
}

impl Protos {
    pub(crate) fn open(folder: &Path) -> Result<Self, Error> {
        let names: Vec<PathBuf> = files_below(folder)?.iter().map(|path| relative(path, folder)).collect();
        let mut files = ChainFileResolver::new();
        files.add(IncludeFileResolver::new(folder.to_owned()));
        let pool = compile(files, &names).map_err(|error| Error::compile(folder, &error))?.descriptor_pool();
        Ok(Self { names, pool })
    }

    /// Writes the files listed at [`crate::protos`].
    pub(crate) fn write(&self, output: &Output) -> Result<(), Error> {
        output.write("descriptors.bin", descriptor_set::encode(self.pool.files()))?;
        let is_own = |file: &FileDescriptor| self.names.iter().any(|name| name == Path::new(file.name()));
        output.write("comments", comments::list(self.pool.files().filter(is_own)))?;
        // Imported files stay in the set, because the generator looks up their enums.
        let file = self.pool.files().map(|file| {
            let mut file = file.file_descriptor_proto().clone();
            comments::clean(&mut file);
            file
        });
        let services = tonic_prost_build::configure().build_transport(false).service_generator();
        rust::importing_config(&self.pool, is_own)
            .service_generator(services)
            .out_dir(output.folder())
            .include_file("protos.rs")
            .compile_fds(prost_types::FileDescriptorSet { file: file.collect() })
            .map_err(Error::Rust)
    }
}

/// Returns the import path of a file.
fn relative(path: &Path, folder: &Path) -> PathBuf {
    path.strip_prefix(folder).unwrap_or(path).to_owned()
}

/// Returns all protos in a folder and below, ordered by path.
fn files_below(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let unreadable = |source| Error::Read { path: folder.to_owned(), source };
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.is_dir() {
            files.extend(files_below(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "proto") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn core() -> Core {
        Core::open(Path::new("../crates/core/proto"), Path::new("../crates/core/templates")).unwrap()
    }

    #[test]
    fn the_set_describes_all_templates_with_their_options() {
        let pool = DescriptorPool::decode(&*core().descriptor_set()).unwrap();
        for service in
            ["listentry.HandleListEntryService", "adapter.template.kubernetes.HandleKubernetesService"]
        {
            assert!(pool.get_service_by_name(service).is_some(), "{service}");
        }
        let name = "istio.mixer.adapter.model.v1beta1.template_name";
        let name = pool.get_extension_by_name(name).unwrap();
        let listentry = pool.get_file_by_name("listentry/template_handler_service.proto").unwrap();
        assert_eq!(listentry.options().get_extension(&name).as_str(), Some("listentry"));
        assert!(pool.files().all(|file| file.file_descriptor_proto().source_code_info.is_none()));
    }

    #[test]
    fn the_files_the_core_includes_are_written() {
        let folder = tempfile::tempdir().unwrap();
        core().write(&Output::to(folder.path())).unwrap();
        let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();

        let templates = read("templates.rs");
        assert!(templates.contains("pub mod kubernetes { include!(concat!(env!(\"OUT_DIR\"), \"/adapter.template.kubernetes.rs\")); }"));
        assert!(templates.contains("pub use listentry::ListEntry;"));
        assert!(read("listentry.rs").contains("pub struct InstanceMsg"));
        assert!(fs::read(folder.path().join("listentry.bin")).unwrap().len() > 1000);

        let protos = read("protos.rs");
        assert!(protos.contains("include!(\"istio.mixer.adapter.model.v1beta1.rs\");"));
        assert!(!protos.contains("listentry"), "templates have modules of their own");
        let policy = read("istio.policy.v1beta1.rs");
        assert!(policy.contains("pub struct DirectHttpResponse") && !policy.contains("pub struct Value"));
    }

    #[test]
    fn a_crate_above_the_core_generates_its_services_and_imports_messages_of_the_core() {
        let folder = tempfile::tempdir().unwrap();
        let protos = Protos::open(Path::new("../crates/engine/proto")).unwrap();
        protos.write(&Output::to(folder.path())).unwrap();
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
    }
}
