//! Templates that only exist as a descriptor: those of other people, in `template` resources and on the command line.

mod descriptor_set;
mod infer;
mod request;
#[cfg(test)]
mod tests;

use http::uri::PathAndQuery;
use prost_reflect::{FileDescriptor, MessageDescriptor};

pub use descriptor_set::{DescriptorError, DescriptorSet};
pub use request::HandleRequest;

use super::Variety;

/// A template known by its descriptor, read by the rules of a real Mixer
/// (docs/behaviour/adapter-calls.md#methods-and-request-fields and
/// docs/behaviour/configuration.md#what-a-template-descriptor-needs).
#[derive(Clone, Debug)]
pub struct DynamicTemplate {
    name: String,
    variety: Variety,
    method: PathAndQuery,
    request: MessageDescriptor,
    response: MessageDescriptor,
    instance: MessageDescriptor,
    instance_type: Option<MessageDescriptor>,
    type_name: String,
    output: Option<MessageDescriptor>,
    fields: RequestFields,
}

/// The numbers of a request message's fields; what it lacks is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestFields {
    /// The instance or instances.
    pub instance: u32,
    /// The configuration or session.
    pub adapter_config: Option<u32>,
    /// The id that all attempts of a call share.
    pub dedup_id: Option<u32>,
    /// The amounts requested.
    pub quota_request: Option<u32>,
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
        let instance = field.and_then(|field| Some((field.number(), field.kind().as_message()?.clone())));
        let (instance_field, instance) = instance.ok_or_else(|| {
            DescriptorError(format!("{} has no message `instance` or `instances`", request.full_name()))
        })?;
        let package = |file: FileDescriptor| file.package_name().to_owned();
        let package = package(service.parent_file());
        let type_name = format!("{package}.Type");
        let output = match variety {
            Variety::AttributeGenerator | Variety::CheckWithOutput => {
                let name = format!("{package}.OutputMsg");
                let output = set.pool.get_message_by_name(&name);
                Some(output.ok_or_else(|| DescriptorError(format!("it has no message `{name}`")))?)
            }
            Variety::Check | Variety::Report | Variety::Quota => None,
        };
        let number = |name: &str| request.get_field_by_name(name).map(|field| field.number());
        let fields = RequestFields {
            instance: instance_field,
            adapter_config: number("adapter_config"),
            dedup_id: number("dedup_id"),
            quota_request: number("quota_request"),
        };
        Ok(Self {
            name,
            variety,
            method: path(&format!("/{}/{}", service.full_name(), method.name()))?,
            response: method.output(),
            instance,
            instance_type: set.pool.get_message_by_name(&type_name),
            type_name,
            output,
            fields,
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
        self.method.as_str()
    }

    /// The path of its gRPC method, for requests.
    pub fn path(&self) -> &PathAndQuery {
        &self.method
    }

    /// One request's payload, `InstanceMsg`.
    pub fn instance(&self) -> &MessageDescriptor {
        &self.instance
    }

    /// What is made out of attributes, `OutputMsg`, for the varieties that have one.
    pub fn output(&self) -> Option<&MessageDescriptor> {
        self.output.as_ref()
    }

    /// The full name of its `Type`, `listentry.Type`.
    pub fn type_name(&self) -> &str {
        &self.type_name
    }

    /// The numbers of the request message's fields.
    pub fn fields(&self) -> RequestFields {
        self.fields
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

/// Names in a descriptor are checked by whoever made it, not by whoever reads it.
fn path(method: &str) -> Result<PathAndQuery, DescriptorError> {
    method.parse().map_err(|_| DescriptorError(format!("{method:?} is no name of a method")))
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
