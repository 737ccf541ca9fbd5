use std::{fmt, sync::Arc};

/// The kind of a resource.
///
/// Kinds are ordered as Mixer processes them (docs/behaviour/configuration.md#processing-order), and so are names.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Kind {
    /// The attributes that a part of the mesh produces.
    AttributeManifest,
    /// The schema of the input of adapters.
    Template,
    /// A plugin.
    Adapter,
    /// An adapter with a configuration.
    Handler,
    /// The expressions that build a template's instance from attributes.
    Instance,
    /// A condition with actions.
    Rule,
    /// Any other kind: the legacy kinds that are named after a compiled-in template or adapter, and kinds that are not
    /// Mixer's.
    Other(Arc<str>),
}

impl Kind {
    /// Mixer's own kinds, in the order they are processed in.
    pub const ALL: [Self; 6] =
        [Self::AttributeManifest, Self::Template, Self::Adapter, Self::Handler, Self::Instance, Self::Rule];

    /// Returns the kind as it is written in a resource, `attributemanifest`.
    pub fn as_str(&self) -> &str {
        match self {
            Self::AttributeManifest => "attributemanifest",
            Self::Template => "template",
            Self::Adapter => "adapter",
            Self::Handler => "handler",
            Self::Instance => "instance",
            Self::Rule => "rule",
            Self::Other(kind) => kind,
        }
    }
}

impl From<&str> for Kind {
    fn from(kind: &str) -> Self {
        let known = Self::ALL.into_iter().find(|known| known.as_str() == kind);
        known.unwrap_or_else(|| Self::Other(kind.into()))
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The full name of a resource, which Mixer writes `name.kind.namespace`; others may have no namespace. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ResourceName {
    kind: Kind,
    namespace: Arc<str>,
    name: Arc<str>,
}

impl ResourceName {
    /// Creates a name of these three parts.
    pub fn new(name: impl Into<Arc<str>>, kind: Kind, namespace: impl Into<Arc<str>>) -> Self {
        Self { kind, namespace: namespace.into(), name: name.into() }
    }

    /// Returns the short name, `metadata.name`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the kind.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// Returns the namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Returns the possible meanings of a reference, best first (docs/behaviour/configuration.md#references). `x` is in
    /// the own namespace. `x.y` is first `x` of the kind `y` in the own namespace, then `x` of the expected kind in the
    /// namespace `y`. Three parts and more are a full name. A default namespace does not apply.
    pub fn candidates(reference: &str, kind: &Kind, own_namespace: &str) -> Vec<Self> {
        let parts: Vec<&str> = reference.rsplitn(3, '.').collect();
        match parts[..] {
            [name] => vec![Self::new(name, kind.clone(), own_namespace)],
            [last, name] => {
                vec![Self::new(name, Kind::from(last), own_namespace), Self::new(name, kind.clone(), last)]
            }
            [namespace, kind, name] => vec![Self::new(name, Kind::from(kind), namespace)],
            _ => Vec::new(),
        }
    }

    /// Returns the shortest reference to this resource from a namespace.
    pub(crate) fn reference_from(&self, namespace: &str) -> String {
        if self.namespace() == namespace {
            self.name().to_owned()
        } else {
            format!("{}.{}", self.name, self.namespace)
        }
    }
}

impl fmt::Display for ResourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace() {
            "" => write!(f, "{}.{}", self.name, self.kind),
            namespace => write!(f, "{}.{}.{namespace}", self.name, self.kind),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates(reference: &str) -> Vec<String> {
        let names = ResourceName::candidates(reference, &Kind::Handler, "own");
        names.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn references_are_resolved_as_mixer_does() {
        assert_eq!(candidates("h"), ["h.handler.own"]);
        assert_eq!(candidates("h.ns"), ["h.ns.own", "h.handler.ns"]);
        assert_eq!(candidates("h.handler"), ["h.handler.own", "h.handler.handler"]);
        assert_eq!(candidates("h.handler.ns"), ["h.handler.ns"]);
        assert_eq!(candidates("h.listchecker.ns"), ["h.listchecker.ns"]);
        assert_eq!(candidates("a.dotted.name.handler.ns"), ["a.dotted.name.handler.ns"]);
    }

    #[test]
    fn a_full_name_is_read_into_its_kind() {
        let read = ResourceName::candidates("a.b.handler.ns", &Kind::Rule, "own");
        assert_eq!(read, [ResourceName::new("a.b", Kind::Handler, "ns")]);
    }

    #[test]
    fn the_suggested_reference_leaves_out_the_own_namespace() {
        let name = ResourceName::new("h", Kind::Handler, "ns");
        assert_eq!(name.reference_from("ns"), "h");
        assert_eq!(name.reference_from("other"), "h.ns");
    }
}
