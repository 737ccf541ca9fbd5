use std::fmt;

/// The kind of a template, which determines when Mixer calls adapters and their type of answer: `TemplateVariety` of
/// extensions.proto.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(i32)]
pub enum Variety {
    /// A precondition check.
    Check = 0,
    /// Telemetry, sent after the request.
    Report = 1,
    /// An allocation of quota.
    Quota = 2,
    /// Generates attributes before checks and reports.
    AttributeGenerator = 3,
    /// A check that also generates attributes, for header operations.
    CheckWithOutput = 4,
}

impl Variety {
    /// Returns the variety with a number in extensions.proto.
    pub fn from_number(number: i32) -> Option<Self> {
        use Variety::{AttributeGenerator, Check, CheckWithOutput, Quota, Report};
        let all = [Check, Report, Quota, AttributeGenerator, CheckWithOutput];
        all.into_iter().find(|variety| *variety as i32 == number)
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
