//! Templates that only exist as a descriptor: those of other people, in `template` resources and on the command line.

mod descriptor_set;
mod infer;
mod request;
#[cfg(test)]
mod tests;

use prost_reflect::{FileDescriptor, MessageDescriptor};

pub use descriptor_set::{DescriptorError, DescriptorSet};
pub use request::HandleRequest;

use super::Variety;

/// A template known by its descriptor, read by the rules of a real Mixer (mixer-wire.md, sections c and d).
#[derive(Clone, Debug)]
pub struct DynamicTemplate {
    name: String,
    variety: Variety,
    method: String,
    request: MessageDescriptor,
    response: MessageDescriptor,
    instance: MessageDescriptor,
    instance_type: Option<MessageDescriptor>,
}

impl DynamicTemplate {
    /// Finds the template in a descriptor set: the one file with the option template_variety, and the first service
    /// whose name begins with `Handle`.
    pub fn new(set: &DescriptorSet) -> Result<Self, DescriptorError> {
        let (name, variety) = identity(set)?;
        let service = set.files().flat_map(|file| file.services().collect::<Vec<_>>());
        let method = service
            .filter(|service| service.name().starts_with("Handle"))
            .find_map(|service| service.methods().next())
            .ok_or_else(|| DescriptorError("it has no service `Handle..` with a method".to_owned()))?;
        let (service, request) = (method.parent_service(), method.input());
        let field = ["instance", "instances"].iter().find_map(|name| request.get_field_by_name(name));
        let instance = field.and_then(|field| field.kind().as_message().cloned()).ok_or_else(|| {
            DescriptorError(format!("{} has no message `instance` or `instances`", request.full_name()))
        })?;
        let package = |file: FileDescriptor| file.package_name().to_owned();
        let instance_type = format!("{}.Type", package(service.parent_file()));
        Ok(Self {
            name,
            variety,
            method: format!("/{}/{}", service.full_name(), method.name()),
            response: method.output(),
            instance,
            instance_type: set.pool.get_message_by_name(&instance_type),
            request,
        })
    }

    /// The name in the descriptor, in lower case. The resource that holds the descriptor may be called otherwise.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// When it is called and what it answers.
    pub fn variety(&self) -> Variety {
        self.variety
    }

    /// The path of its gRPC method, `/listentry.HandleListEntryService/HandleListEntry`.
    pub fn method(&self) -> &str {
        &self.method
    }

    /// One request's payload, `InstanceMsg`.
    pub fn instance(&self) -> &MessageDescriptor {
        &self.instance
    }

    /// The message on the wire.
    pub fn request_message(&self) -> &MessageDescriptor {
        &self.request
    }

    /// The answer on the wire.
    pub fn response_message(&self) -> &MessageDescriptor {
        &self.response
    }
}

fn identity(set: &DescriptorSet) -> Result<(String, Variety), DescriptorError> {
    let mut found = set.files.iter().filter_map(|file| {
        let options = file.options.as_ref()?;
        Some((&file.name, options.template_variety?, options.template_name.as_deref()))
    });
    let (file, variety, name) = found.next().ok_or_else(|| {
        DescriptorError(
            "no file has the option template_variety: this is no template's descriptor".to_owned(),
        )
    })?;
    if let Some((other, ..)) = found.next() {
        return Err(DescriptorError(format!("{file} and {other} both have the option template_variety")));
    }
    let variety = Variety::from_number(variety)
        .ok_or_else(|| DescriptorError(format!("{file}: there is no template_variety {variety}")))?;
    match name {
        Some(name) if !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphabetic()) => {
            Ok((name.to_ascii_lowercase(), variety))
        }
        Some(name) => {
            Err(DescriptorError(format!("{file}: template_name {name:?} must consist of letters only")))
        }
        None => Err(DescriptorError(format!(
            "{file} has no option template_name: give the descriptor of the generated handler service, not of template.proto"
        ))),
    }
}
