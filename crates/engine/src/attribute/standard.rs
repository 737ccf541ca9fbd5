use mixer_adapter_core::value::ValueType;

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
    include_str!("standard.tsv").lines().skip(1).filter_map(|line| {
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
        assert_eq!(attributes.len(), include_str!("standard.tsv").lines().count() - 1);
        assert!(attributes.is_sorted_by_key(|attribute| attribute.name));
        for attribute in attributes {
            assert!(["istioproxy", "kubernetes", ENVOY].contains(&attribute.produced_by), "{attribute:?}");
            assert!(!attribute.meaning.is_empty() && !attribute.meaning.ends_with('.'), "{attribute:?}");
        }
    }
}
