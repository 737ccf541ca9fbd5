//! Compilation of protos: an author's file with its imports, and generated protos.

use std::{
    fs,
    path::{Path, PathBuf},
};

use prost_reflect::FileDescriptor;
use protox::{
    Compiler,
    file::{ChainFileResolver, GoogleFileResolver, IncludeFileResolver},
};

use crate::{
    Error,
    descriptor_set::with_imports,
    imports::{InMemory, Published},
};

/// A compiled file of an author.
pub(crate) struct Source {
    pub(crate) path: PathBuf,
    pub(crate) file: FileDescriptor,
}

impl Source {
    /// Compiles a file. It may import files in its folder and below, files of `mixer-adapter-proto` and
    /// `google/protobuf/*`.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        fs::metadata(path).map_err(|source| Error::Read { path: path.to_owned(), source })?;
        let folder = path.parent().unwrap_or(Path::new(""));
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
            return Err(Error::FileName { path: path.to_owned() });
        };
        let mut files = ChainFileResolver::new();
        files.add(IncludeFileResolver::new(folder.to_owned()));
        let pool = compile(files, [name]).map_err(|error| Error::compile(folder, &error))?.descriptor_pool();
        let Some(file) = pool.get_file_by_name(name) else {
            return Err(Error::FileName { path: path.to_owned() });
        };
        Ok(Self { path: path.to_owned(), file })
    }

    /// Returns the paths of the file and of the author's files that it imports.
    pub(crate) fn inputs(&self) -> Vec<PathBuf> {
        let folder = self.path.parent().unwrap_or(Path::new(""));
        with_imports(&self.file)
            .iter()
            .map(|file| folder.join(file.name()))
            .filter(|path| path.exists())
            .collect()
    }
}

/// Compiles a proto that imports only files of `mixer-adapter-proto`.
pub(crate) fn compile_text(name: &str, text: &str) -> Result<FileDescriptor, Error> {
    let mut files = ChainFileResolver::new();
    files.add(InMemory(name.to_owned(), text.to_owned()));
    let compiler = compile(files, [name]).map_err(|error| Error::compile(Path::new(""), &error))?;
    compiler.descriptor_pool().get_file_by_name(name).ok_or_else(|| Error::FileName { path: name.into() })
}

/// Compiles files, which may also import files of `mixer-adapter-proto` and `google/protobuf/*`.
pub(crate) fn compile(
    mut files: ChainFileResolver,
    names: impl IntoIterator<Item = impl AsRef<Path>>,
) -> Result<Compiler, protox::Error> {
    files.add(Published);
    files.add(GoogleFileResolver::new());
    let mut compiler = Compiler::with_file_resolver(files);
    compiler.open_files(names)?;
    Ok(compiler)
}
