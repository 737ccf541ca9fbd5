use std::sync::Arc;

use crate::{resource::Resource, validation_error::ValidationError};

/// Parsed resources, with the faults of the text. A fault does not affect other resources.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parsed {
    /// The valid resources, in the order of the text.
    pub resources: Vec<Arc<Resource>>,
    /// The faults, and values that a real Mixer reads in another way than they look.
    pub faults: Vec<ValidationError>,
}
