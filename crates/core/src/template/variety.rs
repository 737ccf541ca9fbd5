use std::fmt;

/// When a template's adapters are called and what they answer: `TemplateVariety` of extensions.proto.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(i32)]
pub enum Variety {
    /// A precondition check.
    Check = 0,
    /// Telemetry after a request.
    Report = 1,
    /// An allocation of quota.
    Quota = 2,
    /// Makes attributes before checks and reports.
    AttributeGenerator = 3,
    /// A check that also makes attributes, for header operations.
    CheckWithOutput = 4,
}

impl Variety {
    /// The variety of that number in extensions.proto.
    pub fn from_number(number: i32) -> Option<Self> {
        Some(match number {
            0 => Self::Check,
            1 => Self::Report,
            2 => Self::Quota,
            3 => Self::AttributeGenerator,
            4 => Self::CheckWithOutput,
            _ => return None,
        })
    }
}

impl fmt::Display for Variety {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Check => "check",
            Self::Report => "report",
            Self::Quota => "quota",
            Self::AttributeGenerator => "attribute generator",
            Self::CheckWithOutput => "check with output",
        })
    }
}
