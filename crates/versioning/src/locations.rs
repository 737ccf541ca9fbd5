//! Lines and comments of the elements of a file.

use std::collections::{HashMap, HashSet};

use prost_types::FileDescriptorProto;

/// Annotations in comments that exempt an element from the policy.
const DRAFT: [&str; 4] = [
    "[#not-implemented-hide:]",
    "[#not-implemented-warn:]",
    "[#proto-status: draft]",
    "[#proto-status: experimental]",
];

/// Paths of the statements whose comments are about the whole file: package and syntax.
const FILE: [&[i32]; 2] = [&[2], &[12]];

/// The lines and drafts of a file, by the paths of its elements.
pub(crate) struct Locations {
    lines: HashMap<Vec<i32>, u32>,
    drafts: HashSet<Vec<i32>>,
}

impl Locations {
    pub(crate) fn of(file: &FileDescriptorProto) -> Self {
        let mut locations = Self { lines: HashMap::new(), drafts: HashSet::new() };
        for location in file.source_code_info.iter().flat_map(|info| &info.location) {
            if let Some(line) = location.span.first().and_then(|line| u32::try_from(*line).ok()) {
                locations.lines.insert(location.path.clone(), line + 1);
            }
            // Comments that are apart from an element are only about it if it is the whole file.
            let detached =
                if FILE.contains(&&*location.path) { &*location.leading_detached_comments } else { &[] };
            let comments = [&location.leading_comments, &location.trailing_comments];
            let mut comments = comments.into_iter().flatten().chain(detached);
            if comments.any(|text| DRAFT.iter().any(|draft| text.contains(draft))) {
                locations.drafts.insert(location.path.clone());
            }
        }
        locations
    }

    /// Returns the line of an element, from 1; 0 if it is not known.
    pub(crate) fn line(&self, path: &[i32]) -> u32 {
        self.lines.get(path).copied().unwrap_or_default()
    }

    /// Whether a comment marks the element as a draft.
    pub(crate) fn is_draft(&self, path: &[i32]) -> bool {
        self.drafts.contains(path)
    }

    /// Whether a comment marks the whole file as a draft.
    pub(crate) fn is_draft_file(&self) -> bool {
        FILE.iter().any(|path| self.is_draft(path))
    }
}
