//! Comments of protos as documentation of Rust items.

use prost_types::{FileDescriptorProto, source_code_info::Location};

/// Rewrites all comments of a file so that rustdoc never takes a part of one for a doctest.
pub(crate) fn clean(file: &mut FileDescriptorProto) {
    for location in file.source_code_info.iter_mut().flat_map(|info| &mut info.location) {
        let Location { leading_comments, trailing_comments, leading_detached_comments, .. } = location;
        leading_detached_comments.clear();
        for comment in [leading_comments, trailing_comments].into_iter().flatten() {
            *comment = rustdoc(comment).join("\n");
        }
    }
}

/// The lines of a comment as Markdown without code of Rust: four spaces make a code block in Markdown, and rustdoc
/// compiles code blocks that name no language, or Rust. Outside fences lines lose their indentation; fences become text.
pub(crate) fn rustdoc(comment: &str) -> Vec<String> {
    let mut fence = None;
    comment
        .lines()
        .map(|line| {
            let trimmed = line.trim();
            let marker = ["```", "~~~"].into_iter().find(|marker| trimmed.starts_with(marker));
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
                (None, None) => trimmed.to_owned(),
            }
        })
        .collect()
}
