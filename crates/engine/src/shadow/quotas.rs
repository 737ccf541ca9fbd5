//! Quotas in the shadow have separate counters: their instances have one more dimension.

use mixer_adapter_core::framework::dynamic::DynamicTemplate;

use super::ShadowKind;
use crate::wire;

/// The dimension of quotas in the shadow. Its value is the kind of shadow.
const DIMENSION: &str = "mixer-adapter/shadow";

/// The type of the values of dimensions.
const VALUE: &str = "istio.policy.v1beta1.Value";

/// Returns the number of the field for dimensions in the instances of a template; `None` if they have none.
pub(crate) fn dimensions_field(template: &DynamicTemplate) -> Option<u32> {
    let field = template.instance().get_field_by_name("dimensions")?;
    let entry = field.kind().as_message().filter(|entry| entry.is_map_entry())?.clone();
    let value = entry.map_entry_value_field().kind();
    (value.as_message()?.full_name() == VALUE).then(|| field.number())
}

/// Adds the dimension to an encoded instance, if its template has dimensions.
pub(crate) fn keep_apart(kind: ShadowKind, template: &DynamicTemplate, instance: &mut Vec<u8>) {
    let Some(number) = dimensions_field(template) else { return };
    let (mut value, mut entry) = (Vec::new(), Vec::new());
    // `string_value` of the value; key and value of the entry.
    wire::bytes(1, kind.name().as_bytes(), &mut value);
    wire::bytes(1, DIMENSION.as_bytes(), &mut entry);
    wire::bytes(2, &value, &mut entry);
    wire::bytes(number, &entry, instance);
}
