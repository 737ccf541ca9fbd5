//! Templates defined by a descriptor, in `template` resources and on the command line.

mod descriptor_set;
mod error;
mod infer;
mod request;

use http::uri::PathAndQuery;
use prost_reflect::MessageDescriptor;

pub use descriptor_set::DescriptorSet;
pub(super) use descriptor_set::known_file;
pub use error::DescriptorError;
pub use request::HandleRequest;

use crate::template::Variety;

/// A template defined by a descriptor, read by the rules of a real Mixer
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

/// The field numbers of a request message; fields that it lacks are not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestFields {
    /// The instance or instances.
    pub instance: u32,
    /// The configuration or session id.
    pub adapter_config: Option<u32>,
    /// The id shared by all attempts of a call.
    pub dedup_id: Option<u32>,
    /// The amounts requested.
    pub quota_request: Option<u32>,
}

impl DynamicTemplate {
    /// Finds the template in a descriptor set: the only file with the option template_variety, and the first service
    /// whose name begins with `Handle`.
    pub fn new(set: &DescriptorSet) -> Result<Self, DescriptorError> {
        let (name, variety) = identity(set)?;
        let service = set.files().flat_map(|file| file.services().collect::<Vec<_>>());
        let method = service
            .filter(|service| service.name().starts_with("Handle"))
            .find_map(|service| service.methods().next())
            .ok_or(DescriptorError::NoService)?;
        let (service, request) = (method.parent_service(), method.input());
        let field = ["instance", "instances"].iter().find_map(|name| request.get_field_by_name(name));
        let instance = field.and_then(|field| Some((field.number(), field.kind().as_message()?.clone())));
        let (instance_field, instance) =
            instance.ok_or_else(|| DescriptorError::NoInstance(request.full_name().to_owned()))?;
        let file = service.parent_file();
        let package = file.package_name();
        let type_name = format!("{package}.Type");
        let output = match variety {
            Variety::AttributeGenerator | Variety::CheckWithOutput => {
                let name = format!("{package}.OutputMsg");
                let output = set.pool.get_message_by_name(&name);
                Some(output.ok_or(DescriptorError::NoMessage(name))?)
            }
            Variety::Check | Variety::Report | Variety::Quota => None,
        };
        let [adapter_config, dedup_id, quota_request] = ["adapter_config", "dedup_id", "quota_request"]
            .map(|name| request.get_field_by_name(name).map(|field| field.number()));
        let fields = RequestFields { instance: instance_field, adapter_config, dedup_id, quota_request };
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

    /// Returns the name in the descriptor, in lower case. The resource with the descriptor may have another name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the variety.
    pub fn variety(&self) -> Variety {
        self.variety
    }

    /// Returns the path of the gRPC method, `/listentry.HandleListEntryService/HandleListEntry`.
    pub fn method(&self) -> &str {
        self.method.as_str()
    }

    /// Returns the path of the gRPC method, for HTTP requests.
    pub fn path(&self) -> &PathAndQuery {
        &self.method
    }

    /// Returns the payload of one request, `InstanceMsg`.
    pub fn instance(&self) -> &MessageDescriptor {
        &self.instance
    }

    /// Returns the source of generated attributes, `OutputMsg`, for the varieties that have one.
    pub fn output(&self) -> Option<&MessageDescriptor> {
        self.output.as_ref()
    }

    /// Returns the full name of its `Type`, `listentry.Type`.
    pub fn type_name(&self) -> &str {
        &self.type_name
    }

    /// Returns the field numbers of the request message.
    pub fn fields(&self) -> RequestFields {
        self.fields
    }

    /// Returns the request message.
    pub fn request_message(&self) -> &MessageDescriptor {
        &self.request
    }

    /// Returns the response message.
    pub fn response_message(&self) -> &MessageDescriptor {
        &self.response
    }
}

fn path(method: &str) -> Result<PathAndQuery, DescriptorError> {
    // Descriptors come from others, and names in them are not validated.
    method.parse().map_err(|_| DescriptorError::InvalidMethod(method.to_owned()))
}

fn identity(set: &DescriptorSet) -> Result<(String, Variety), DescriptorError> {
    let mut templates = set.files.iter().filter_map(|file| {
        let options = file.options.as_ref()?;
        Some((file.name.clone(), options.template_variety?, options.template_name.clone()))
    });
    let (file, number, name) = templates.next().ok_or(DescriptorError::NoVariety)?;
    if let Some((second, ..)) = templates.next() {
        return Err(DescriptorError::TwoVarieties { first: file, second });
    }
    let Some(variety) = Variety::from_number(number) else {
        return Err(DescriptorError::UnknownVariety { file, number });
    };
    match name {
        Some(name) if !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphabetic()) => {
            Ok((name.to_ascii_lowercase(), variety))
        }
        Some(name) => Err(DescriptorError::InvalidName { file, name }),
        None => Err(DescriptorError::NoName { file }),
    }
}
