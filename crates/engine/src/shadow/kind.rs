/// The rules in the shadow, or a whole configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ShadowKind {
    /// Rules and actions of the configuration in use.
    Rules,
    /// A second configuration.
    Configuration,
}

impl ShadowKind {
    /// All kinds by discriminant.
    pub const ALL: [Self; 2] = [Self::Rules, Self::Configuration];

    /// Returns the name of the kind.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rules => "rules",
            Self::Configuration => "configuration",
        }
    }
}
