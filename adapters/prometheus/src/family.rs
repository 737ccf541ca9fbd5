//! A metric of the page.

use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
    sync::Arc,
};

use mixer_adapter_core::{retention::Retain, value::Value};
use mixer_adapter_telemetry::series::SeriesSet;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::definition::Definition;

/// The maximum size of the series of all metrics in bytes. A label may have any length, and a distribution many buckets.
pub(super) const LABEL_BYTES: usize = 32 << 20;

/// A metric, shared by the handlers that update it.
#[derive(Debug)]
pub(super) struct Family {
    pub(super) definition: Definition,
    /// By the labels in the format of the page.
    pub(super) series: SeriesSet<str>,
    help: Mutex<String>,
}

impl Retain for Family {
    fn bytes(&self) -> usize {
        match self.series.bytes() {
            0 => 0,
            bytes => size_of::<Self>() + bytes,
        }
    }
}

impl Family {
    pub(super) fn new(definition: Definition, free_bytes: Arc<Semaphore>) -> Self {
        let series = SeriesSet::new(definition.name.clone(), definition.kind.clone(), free_bytes);
        Self { definition, series, help: Mutex::default() }
    }

    /// Sets the help text. The handler that was opened last determines it.
    pub(super) fn set_help(&self, help: String) {
        *self.help.lock() = help;
    }

    pub(super) fn help(&self) -> String {
        self.help.lock().clone()
    }
}

/// Writes labels in the format of the page, `a="x",b="y"`. A missing dimension is an empty label, which Prometheus treats as
/// absent; dimensions without a label are ignored.
pub(super) fn write_labels<'a>(
    text: &mut String,
    labels: impl Iterator<Item = (&'a String, &'a String)>,
    dimensions: &BTreeMap<String, Value>,
) {
    for (label, dimension) in labels {
        if !text.is_empty() {
            text.push(',');
        }
        text.push_str(label);
        text.push_str("=\"");
        if let Some(value) = dimensions.get(dimension) {
            // Writing to a String does not fail.
            let _ = write!(Escaped(text), "{value}");
        }
        text.push('"');
    }
}

/// Escapes text as in label values.
struct Escaped<'a>(&'a mut String);

impl fmt::Write for Escaped<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            match c {
                '\\' => self.0.push_str(r"\\"),
                '"' => self.0.push_str(r#"\""#),
                '\n' => self.0.push_str(r"\n"),
                c => self.0.push(c),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_written_escaped_and_empty_where_a_dimension_is_absent() {
        let dimensions: BTreeMap<String, Value> = [
            ("text", Value::from("a\"b\\c\nd")),
            ("bool", true.into()),
            ("other", 1.into()),
            ("nothing", Value::Unspecified),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        let labels = ["bool", "missing", "nothing", "text"].map(str::to_owned);
        let mut text = String::new();
        write_labels(&mut text, labels.iter().zip(&labels), &dimensions);
        assert_eq!(text, r#"bool="true",missing="",nothing="",text="a\"b\\c\nd""#);
    }
}
