//! Positions and comments of descriptor elements.

use prost_types::{FileDescriptorProto, source_code_info::Location};

/// Field numbers of descriptor.proto, which form the paths of elements.
pub(crate) mod path {
    pub(crate) const FILE_PACKAGE: i32 = 2;
    pub(crate) const FILE_DEPENDENCY: i32 = 3;
    pub(crate) const FILE_ENUM: i32 = 5;
    pub(crate) const FILE_SERVICE: i32 = 6;
    pub(crate) const FILE_EXTENSION: i32 = 7;
    pub(crate) const FILE_OPTIONS: i32 = 8;
    pub(crate) const FILE_SYNTAX: i32 = 12;
}

/// Returns line and column of an element, both from 1; the start of the file if the element has no position.
pub(crate) fn position(file: &FileDescriptorProto, path: &[i32]) -> (usize, usize) {
    match location(file, path).map(|location| &*location.span) {
        Some([line, column, ..]) => (one_based(*line), one_based(*column)),
        _ => (1, 1),
    }
}

/// Returns the comment above an element, or else the one after it.
pub(crate) fn comment<'a>(file: &'a FileDescriptorProto, path: &[i32]) -> Option<&'a str> {
    let location = location(file, path)?;
    location.leading_comments.as_deref().or(location.trailing_comments.as_deref())
}

fn location<'a>(file: &'a FileDescriptorProto, path: &[i32]) -> Option<&'a Location> {
    file.source_code_info.as_ref()?.location.iter().find(|location| location.path == path)
}

fn one_based(number: i32) -> usize {
    usize::try_from(number).unwrap_or_default() + 1
}
