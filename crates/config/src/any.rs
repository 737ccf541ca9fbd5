use prost_reflect::{DynamicMessage, ReflectMessage as _};

/// Returns the message in a `google.protobuf.Any`, if its type is known in the same pool.
pub fn content(any: &DynamicMessage) -> Option<DynamicMessage> {
    let descriptor = any.descriptor();
    if descriptor.full_name() != "google.protobuf.Any" {
        return None;
    }
    let (type_url, value) = (any.get_field_by_name("type_url")?, any.get_field_by_name("value")?);
    let name = type_url.as_str()?.rsplit('/').next()?;
    let content = descriptor.parent_pool().get_message_by_name(name)?;
    DynamicMessage::decode(content, value.as_bytes()?.clone()).ok()
}
