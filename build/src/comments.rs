//! Conversion of proto comments to Rust documentation.

use std::collections::BTreeMap;

use prost_reflect::{EnumDescriptor, FileDescriptor, MessageDescriptor};
use prost_types::{FileDescriptorProto, source_code_info::Location};

use crate::source_info::comment;

/// Lists the comments of all messages, fields, enums and their values. Each line has the full name (`enum.value` for a
/// value), a tab, and the comment as one paragraph. Google's own files are not included.
pub(crate) fn list(files: impl IntoIterator<Item = FileDescriptor>) -> String {
    let mut found = BTreeMap::new();
    for file in files.into_iter().filter(|file| !file.package_name().starts_with("google.protobuf")) {
        let mut lister = Lister { file: file.file_descriptor_proto(), found: &mut found };
        file.messages().for_each(|message| lister.message(&message));
        file.enums().for_each(|values| lister.values(&values));
    }
    found.into_iter().map(|(name, text)| format!("{name}\t{text}\n")).collect()
}

struct Lister<'a> {
    file: &'a FileDescriptorProto,
    found: &'a mut BTreeMap<String, String>,
}

impl Lister<'_> {
    fn message(&mut self, message: &MessageDescriptor) {
        self.element(message.full_name().to_owned(), message.path());
        for field in message.fields() {
            self.element(field.full_name().to_owned(), field.path());
        }
        message.child_messages().for_each(|child| self.message(&child));
        message.child_enums().for_each(|child| self.values(&child));
    }

    fn values(&mut self, values: &EnumDescriptor) {
        self.element(values.full_name().to_owned(), values.path());
        for value in values.values() {
            self.element(format!("{}.{}", values.full_name(), value.name()), value.path());
        }
    }

    fn element(&mut self, name: String, path: &[i32]) {
        let text = comment(self.file, path).map(|text| text.split_whitespace().collect::<Vec<_>>().join(" "));
        self.found.extend(text.filter(|text| !text.is_empty()).map(|text| (name, text)));
    }
}

/// Rewrites all comments of a file so that rustdoc does not run parts of them as doctests.
pub(crate) fn clean(file: &mut FileDescriptorProto) {
    for location in file.source_code_info.iter_mut().flat_map(|info| &mut info.location) {
        let Location { leading_comments, trailing_comments, leading_detached_comments, .. } = location;
        leading_detached_comments.clear();
        for comment in [leading_comments, trailing_comments].into_iter().flatten() {
            *comment = rustdoc(comment).join("\n");
        }
    }
}

/// Converts a comment to lines of Markdown without Rust code. rustdoc compiles code blocks without a language and indented
/// lines, also in lists and quotations. Therefore fences at the start of a line become fences of text, and other fences and
/// indentation are removed.
pub(crate) fn rustdoc(comment: &str) -> Vec<String> {
    let mut fence = None;
    comment
        .lines()
        .map(|line| {
            let marker = ["```", "~~~"].into_iter().find(|marker| line.trim().starts_with(marker));
            match (fence, marker) {
                (None, Some(marker)) => {
                    fence = Some(marker);
                    format!("{marker}text")
                }
                (Some(open), Some(marker)) if open == marker => {
                    fence = None;
                    marker.to_owned()
                }
                (Some(_), _) => line.strip_prefix(' ').unwrap_or(line).to_owned(),
                (None, None) => {
                    let words: Vec<_> = line.split_whitespace().collect();
                    words.join(" ").replace("```", "`").replace("~~~", "~")
                }
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::rustdoc;

    #[test]
    fn prose_is_unchanged() {
        assert_eq!(rustdoc(" One line.\n Another, with `code`.\n"), ["One line.", "Another, with `code`."]);
    }

    #[test]
    fn indented_lines_are_prose() {
        assert_eq!(rustdoc(" For example:\n\n     let x = 5\n"), ["For example:", "", "let x = 5"]);
        assert_eq!(rustdoc(" -     let x = 5\n >\tlet y = 6"), ["- let x = 5", "> let y = 6"]);
    }

    #[test]
    fn fences_contain_text() {
        assert_eq!(
            rustdoc(" ```rust\n let x = 5\n   let y = 6\n ```\n"),
            ["```text", "let x = 5", "  let y = 6", "```"]
        );
        assert_eq!(rustdoc(" ~~~\n ```\n ~~~"), ["~~~text", "```", "~~~"]);
        assert_eq!(rustdoc(" - ```rust\n   let x = 5\n"), ["- `rust", "let x = 5"]);
    }
}
