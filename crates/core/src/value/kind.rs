use std::fmt;

pub use crate::proto::istio::policy::v1beta1::ValueType;

impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str_name())
    }
}
