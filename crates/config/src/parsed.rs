use super::{Resource, ValidationError};

/// What was read, and what is wrong with it. A fault never costs its neighbours.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parsed {
    /// The resources that could be read, in the order of the text.
    pub resources: Vec<Resource>,
    /// What could not be read, and what reads otherwise than it looks.
    pub faults: Vec<ValidationError>,
}
