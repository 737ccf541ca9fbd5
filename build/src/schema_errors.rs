//! The faults of one file.

use prost_reflect::FileDescriptor;

use crate::{Error, ProtoError, SchemaError, source::Source, source_info};

/// Collects the faults of one file.
pub(crate) struct SchemaErrors<'a> {
    path: String,
    file: &'a FileDescriptor,
    found: Vec<ProtoError>,
}

impl<'a> SchemaErrors<'a> {
    pub(crate) fn of(source: &'a Source) -> Self {
        Self { path: source.path.display().to_string(), file: &source.file, found: Vec::new() }
    }

    /// Adds a fault of the element at a path; `&[]` is the file itself.
    pub(crate) fn add(&mut self, path: &[i32], reason: SchemaError) {
        let (line, column) = source_info::position(self.file.file_descriptor_proto(), path);
        self.found.push(ProtoError { file: self.path.clone(), line, column, reason });
    }

    /// Returns the value if there are no faults, and otherwise the faults in the order of the file.
    pub(crate) fn or<T>(mut self, value: Option<T>) -> Result<T, Error> {
        self.found.sort_by_key(|error| (error.line, error.column));
        match value {
            Some(value) if self.found.is_empty() => Ok(value),
            _ => Err(Error::Invalid(self.found)),
        }
    }
}
