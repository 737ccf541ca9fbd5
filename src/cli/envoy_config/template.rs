//! Templates of YAML documents.

/// Fills the placeholders of a template. A line that is only `$NAME` becomes the lines of the value with its indentation, and is
/// removed if the value is empty; elsewhere `$NAME` becomes the value.
///
/// No name may begin with another one.
pub(super) fn fill(template: &str, values: &[(&str, &str)]) -> String {
    let mut text = String::with_capacity(template.len());
    for line in template.lines() {
        let content = line.trim_start();
        match values.iter().find(|(name, _)| *name == content) {
            Some((_, value)) => {
                let indentation = &line[..line.len() - content.len()];
                for line in value.lines() {
                    text.push_str(if line.is_empty() { "" } else { indentation });
                    text.push_str(line);
                    text.push('\n');
                }
            }
            None => {
                let replaced =
                    values.iter().fold(line.to_owned(), |line, (name, value)| line.replace(name, value));
                text.push_str(&replaced);
                text.push('\n');
            }
        }
    }
    text
}

/// A string of YAML, which reads JSON's strings.
pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// A list of YAML in one line.
pub(super) fn list<T: AsRef<str>>(items: impl IntoIterator<Item = T>) -> String {
    let items: Vec<String> = items.into_iter().map(|item| quoted(item.as_ref())).collect();
    format!("[{}]", items.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_becomes_the_lines_of_its_value_and_a_word_becomes_the_value() {
        let filled = fill(
            "a:\n  $LINES\n  $NONE\nb: $WORD\n",
            &[("$LINES", "- 1\n\n- 2"), ("$NONE", ""), ("$WORD", "x")],
        );
        assert_eq!(filled, "a:\n  - 1\n\n  - 2\nb: x\n");
    }
}
