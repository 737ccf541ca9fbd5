use std::sync::LazyLock;

use mixer_adapter_core::value::ValueType;

/// The standard attributes by name, after a header.
const TABLE: &str = include_str!("standard.tsv");

/// The names in the table.
pub(super) static NAMES: LazyLock<Vec<&str>> =
    LazyLock::new(|| standard_attributes().map(|attribute| attribute.name).collect());

/// A standard attribute that the program names: its index in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standard(pub(super) usize);

impl Standard {
    /// Finds an attribute. A constant with a wrong name does not compile.
    ///
    /// # Panics
    /// No standard attribute has this name.
    pub const fn named(name: &str) -> Self {
        let (table, name) = (TABLE.as_bytes(), name.as_bytes());
        let (mut line, mut start, mut equal) = (0, 0, 0);
        while equal < name.len() || table[start + equal] != b'\t' {
            if equal < name.len() && table[start + equal] == name[equal] {
                equal += 1;
                continue;
            }
            while table[start] != b'\n' {
                start += 1;
            }
            (line, start, equal) = (line + 1, start + 1, 0);
            assert!(start < table.len(), "no standard attribute has this name");
        }
        // The header is not an attribute.
        Self(line - 1)
    }

    /// The full name.
    pub fn name(self) -> &'static str {
        NAMES[self.0]
    }
}

/// An attribute that is known without an attribute manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StandardAttribute {
    /// The full name, such as `request.path`.
    pub name: &'static str,
    /// The type.
    pub value_type: ValueType,
    /// `istioproxy` or `kubernetes`, the manifests of Istio that declare it; `envoy` for attributes of requests of Envoy that Istio's
    /// manifests do not have (docs/envoy/attributes.md), which are always declared.
    pub produced_by: &'static str,
    /// A description, as a noun phrase.
    pub meaning: &'static str,
}

/// The value of [`StandardAttribute::produced_by`] for attributes that are declared even if a configuration has attribute manifests.
pub(crate) const ENVOY: &str = "envoy";

/// Iterates over the attributes of Istio's own manifests and of requests of Envoy, by name.
pub fn standard_attributes() -> impl Iterator<Item = StandardAttribute> {
    TABLE.lines().skip(1).filter_map(|line| {
        let mut columns = line.split('\t');
        Some(StandardAttribute {
            name: columns.next()?,
            value_type: columns.next().and_then(ValueType::from_str_name)?,
            produced_by: columns.next()?,
            meaning: columns.next()?,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_is_an_attribute_with_a_meaning() {
        let attributes: Vec<_> = standard_attributes().collect();
        assert_eq!(attributes.len(), TABLE.lines().count() - 1);
        assert!(attributes.is_sorted_by_key(|attribute| attribute.name));
        for attribute in attributes {
            assert!(["istioproxy", "kubernetes", ENVOY].contains(&attribute.produced_by), "{attribute:?}");
            assert!(!attribute.meaning.is_empty() && !attribute.meaning.ends_with('.'), "{attribute:?}");
            assert_eq!(Standard::named(attribute.name).name(), attribute.name);
        }
    }
}
