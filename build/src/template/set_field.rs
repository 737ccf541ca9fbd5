//! Generation of `SetField` for the messages of instances.

use crate::rust::ROOT;

/// Implements `SetField` for the messages whose names end in `Msg`. prost names the fields in Rust, so they are read from its code.
pub(crate) fn generate(messages: &str) -> String {
    let root = &*ROOT;
    let (mut code, mut in_message, mut number) = (String::new(), false, "");
    for line in messages.lines().map(str::trim).filter(|line| !line.starts_with("//")) {
        if let Some((name, _)) = line.strip_prefix("pub struct ").and_then(|line| line.split_once(" {")) {
            in_message = name.ends_with("Msg");
            if in_message {
                code += &format!(
                    "impl {root}::template::SetField for {name} {{\n\
                     fn set(&mut self, path: &[{root}::template::PathStep], value: {root}::value::Value) -> bool {{\n\
                     let [{root}::template::PathStep::Field(number), path @ ..] = path else {{ return false }};\n\
                     match number {{\n"
                );
            }
        }
        if !in_message {
            continue;
        }
        if let Some((_, tag)) = line.split_once("tag = \"") {
            number = tag.split('"').next().unwrap_or_default();
        }
        if let Some((field, _)) = line.strip_prefix("pub ").and_then(|line| line.split_once(": ")) {
            code +=
                &format!("{number} => {root}::template::SetField::set(&mut self.{field}, path, value),\n");
        }
        if line.ends_with('}') {
            code += "_ => false,\n}\n}\n}\n";
            in_message = false;
        }
    }
    code
}
