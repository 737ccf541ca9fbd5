//! Referenced attributes of an answer as text, in order: `request.headers[x]=EXACT`.

use mixer_adapter_engine::{
    dictionary::WORDS,
    proto::istio::mixer::v1::{ReferencedAttributes, referenced_attributes::Condition},
};

pub(crate) fn referenced_attributes(referenced: &ReferencedAttributes) -> Vec<String> {
    let word = |index: i32| match usize::try_from(index) {
        Ok(global) => WORDS[global].to_string(),
        Err(_) => referenced.words[usize::try_from(-index - 1).unwrap()].clone(),
    };
    let mut list: Vec<String> = referenced
        .attribute_matches
        .iter()
        .map(|attribute| {
            let key = match attribute.map_key {
                0 => String::new(),
                key => format!("[{}]", word(key)),
            };
            let condition = match attribute.condition() {
                Condition::Exact => "EXACT",
                Condition::Absence => "ABSENCE",
                _ => "?",
            };
            format!("{}{key}={condition}", word(attribute.name))
        })
        .collect();
    list.sort();
    list
}
