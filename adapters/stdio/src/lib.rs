//! Writes log entries and metrics, a line each, to a standard stream or a file.

mod file;
mod folder;
mod line;
mod settings;
mod sink;
mod target;
mod writer_thread;
#[cfg(test)]
mixer_adapter::testing::compliance!(
    Stdio,
    config("{log_stream: FILE, output_path: /dev/null}"),
    refuses("output_path", "log_stream: FILE")
);

#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, fmt::Write as _, time::SystemTime};

use mixer_adapter_core::{
    Adapter, AdapterError, Call, Code, Context, Handle, adapter::ConfigErrors, prost_types::Timestamp,
    value::Value,
};
use mixer_adapter_templates::{LogEntry, Metric, logentry, metric};

use self::{
    line::{Encoding, Line},
    params::Level,
    settings::Levels,
    writer_thread::{LostLinesError, OpenError, TargetWriter, Targets},
};

mixer_adapter_core::include_proto!("adapter.stdio.config");

pub use settings::StdioSettings;

/// The time of a log entry that has none, as in the original: Go's zero time.
const NO_TIME: Timestamp = Timestamp { seconds: -62_135_596_800, nanos: 0 };

/// The value of a metric that has none.
static NO_VALUE: Value = Value::Unspecified;

/// The handler: what lines look like, and the way to where they go.
#[derive(Debug)]
pub struct Stdio {
    encoding: Encoding,
    levels: Levels,
    writer: TargetWriter,
}

impl Stdio {
    fn write<'a>(&self, lines: impl Iterator<Item = Line<'a>>) -> Result<(), AdapterError> {
        let mut text = String::new();
        for line in lines.filter(|line| line.level >= self.levels.output) {
            // A String takes everything.
            let _ = write!(text, "{line}");
        }
        Ok(self.writer.write(text.into_bytes())?)
    }

    fn line<'a>(
        &self,
        level: Level,
        time: Timestamp,
        instance: &'a str,
        value: Option<&'a Value>,
        fields: &'a BTreeMap<String, Value>,
    ) -> Line<'a> {
        Line { encoding: self.encoding, level, time, instance, value, fields }
    }
}

impl Adapter for Stdio {
    const NAME: &str = "stdio";
    const DESCRIPTION: &str = "Writes log entries and metrics to a standard stream or a file.";
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    const EXAMPLE: &str = include_str!("../example.yaml");
    type Config = StdioSettings;
    type Templates = (LogEntry, Metric);

    async fn open(settings: StdioSettings, context: Context) -> Result<Self, AdapterError> {
        let StdioSettings { target, rotation, encoding, levels } = settings;
        let targets = context.shared(|| Targets::new(context.metrics()));
        let writer = targets.open(target, rotation).await?;
        Ok(Self { encoding, levels, writer })
    }

    async fn close(self) {
        self.writer.close().await;
    }
}

impl Handle<LogEntry> for Stdio {
    async fn handle(&self, entries: Call<Vec<logentry::InstanceMsg>>) -> Result<(), AdapterError> {
        self.write(entries.iter().map(|entry| {
            let level = self.levels.of_severity(&entry.severity);
            let time = entry.timestamp.map_or(NO_TIME, |time| time.value.unwrap_or_default());
            self.line(level, time, &entry.name, None, &entry.variables)
        }))
    }
}

impl Handle<Metric> for Stdio {
    async fn handle(&self, metrics: Call<Vec<metric::InstanceMsg>>) -> Result<(), AdapterError> {
        let now = Timestamp::from(SystemTime::now());
        self.write(metrics.iter().map(|metric| {
            let value = metric.value.as_ref().unwrap_or(&NO_VALUE);
            self.line(self.levels.metric, now, &metric.name, Some(value), &metric.dimensions)
        }))
    }
}

impl From<OpenError> for AdapterError {
    fn from(error: OpenError) -> Self {
        match &error {
            OpenError::Unwritable { .. } => ConfigErrors::single("output_path", error.to_string()).into(),
            OpenError::TooMany => Self::new(Code::ResourceExhausted, error.to_string()),
        }
    }
}

impl From<LostLinesError> for AdapterError {
    fn from(lost: LostLinesError) -> Self {
        Self::unavailable(lost.to_string())
    }
}
