//! Varieties of templates.

use std::fmt;

/// The kind of a template, which determines when Mixer calls adapters: `TemplateVariety` of extensions.proto.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variety {
    /// CHECK
    Check = 0,
    /// REPORT
    Report = 1,
    /// QUOTA
    Quota = 2,
    /// ATTRIBUTE_GENERATOR
    AttributeGenerator = 3,
    /// CHECK_WITH_OUTPUT
    CheckWithOutput = 4,
}

impl Variety {
    pub(crate) fn from_number(number: i32) -> Option<Self> {
        use Variety::{AttributeGenerator, Check, CheckWithOutput, Quota, Report};
        [Check, Report, Quota, AttributeGenerator, CheckWithOutput]
            .into_iter()
            .find(|variety| *variety as i32 == number)
    }

    /// Returns whether adapters answer with an `OutputMsg`, which requires an `OutputTemplate`.
    pub(crate) fn has_output(self) -> bool {
        matches!(self, Self::AttributeGenerator | Self::CheckWithOutput)
    }

    /// Returns the response message of `mixer/adapter/model/v1beta1` and its file.
    pub(crate) fn result(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Check | Self::CheckWithOutput => Some(("CheckResult", "check.proto")),
            Self::Report => Some(("ReportResult", "report.proto")),
            Self::Quota => Some(("QuotaResult", "quota.proto")),
            Self::AttributeGenerator => None,
        }
    }
}

impl fmt::Display for Variety {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Check => "CHECK",
            Self::Report => "REPORT",
            Self::Quota => "QUOTA",
            Self::AttributeGenerator => "ATTRIBUTE_GENERATOR",
            Self::CheckWithOutput => "CHECK_WITH_OUTPUT",
        })
    }
}
