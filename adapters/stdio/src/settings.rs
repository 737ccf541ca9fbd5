//! The configuration with the defaults of the original.

use std::{collections::BTreeMap, time::Duration};

use mixer_adapter_core::adapter::{Faults, Settings};

use super::{
    Params,
    file::Rotation,
    line::Encoding,
    params::{Level, Stream},
    target::Target,
};

/// The default severities, each also in lower case (docs/behaviour/adapters.md#severities-of-stdio).
const SEVERITIES: [(&str, Level); 7] = [
    ("INFORMATIONAL", Level::Info),
    ("INFO", Level::Info),
    ("WARNING", Level::Warning),
    ("WARN", Level::Warning),
    ("ERROR", Level::Error),
    ("ERR", Level::Error),
    ("FATAL", Level::Error),
];

const MEGABYTE: u64 = 1024 * 1024;
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A validated configuration.
#[derive(Debug)]
pub struct StdioSettings {
    pub(super) target: Target,
    /// Only for a rotated file.
    pub(super) rotation: Option<Rotation>,
    pub(super) encoding: Encoding,
    pub(super) levels: Levels,
}

/// The levels of log entries and metrics.
#[derive(Debug)]
pub(super) struct Levels {
    severities: BTreeMap<String, Level>,
    pub(super) metric: Level,
    pub(super) output: Level,
}

impl Levels {
    /// Returns the level of a log entry; an unknown severity is information.
    pub(super) fn of_severity(&self, severity: &str) -> Level {
        self.severities.get(severity).copied().unwrap_or(Level::Info)
    }
}

impl Settings for StdioSettings {
    type Params = Params;

    fn parse(params: Params, faults: &mut Faults<'_>) -> Option<Self> {
        let stream =
            Stream::try_from(params.log_stream).map_err(|_| "must be STDOUT, STDERR, FILE or ROTATED_FILE");
        let stream = faults.check("log_stream", stream).unwrap_or(Stream::Stdout);
        let target = read_target(stream, &params.output_path, faults);
        let mut count = |field, given, default| {
            let count = faults.number(field, given).must("not be negative", |count: &i32| *count >= 0);
            u32::try_from(count.or(default)).unwrap_or(0)
        };
        let megabytes = count("max_megabytes_before_rotation", params.max_megabytes_before_rotation, 100);
        let days = count("max_days_before_rotation", params.max_days_before_rotation, 30);
        let files = count("max_rotated_files", params.max_rotated_files, 1000);
        let rotation = Rotation {
            max_bytes: u64::from(if megabytes == 0 { 100 } else { megabytes }) * MEGABYTE,
            max_age: (days > 0).then(|| DAY * days),
            max_files: (files > 0).then_some(files as usize),
        };
        let levels = Levels {
            severities: read_severities(&params.severity_levels, faults),
            metric: read_level(params.metric_level, "metric_level", faults),
            output: read_level(params.output_level, "output_level", faults),
        };
        Some(Self {
            target: target?,
            rotation: (stream == Stream::RotatedFile).then_some(rotation),
            encoding: if params.output_as_json.unwrap_or(true) { Encoding::Json } else { Encoding::Console },
            levels,
        })
    }
}

/// Returns the target; `None` if it has a fault.
fn read_target(stream: Stream, path: &str, faults: &mut Faults<'_>) -> Option<Target> {
    let target = match stream {
        Stream::Stdout => Target::Stdout,
        Stream::Stderr => Target::Stderr,
        Stream::File | Stream::RotatedFile if path.is_empty() => {
            faults.push("output_path", "must be a file if log_stream is FILE or ROTATED_FILE");
            return None;
        }
        Stream::File | Stream::RotatedFile => return faults.file("output_path", path).map(Target::File),
    };
    if !path.is_empty() {
        faults.push("output_path", "must be empty if log_stream is STDOUT or STDERR");
    }
    Some(target)
}

fn read_severities(given: &BTreeMap<String, i32>, faults: &mut Faults<'_>) -> BTreeMap<String, Level> {
    if given.is_empty() {
        return SEVERITIES
            .into_iter()
            .flat_map(|(severity, level)| {
                [(severity.to_owned(), level), (severity.to_ascii_lowercase(), level)]
            })
            .collect();
    }
    given
        .iter()
        .map(|(severity, level)| {
            (severity.clone(), read_level(*level, &format!("severity_levels[{severity:?}]"), faults))
        })
        .collect()
}

fn read_level(given: i32, path: &str, faults: &mut Faults<'_>) -> Level {
    let level = Level::try_from(given).map_err(|_| "must be INFO, WARNING or ERROR");
    faults.check(path, level).unwrap_or(Level::Info)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use mixer_adapter_core::adapter::ConfigErrors;

    use super::*;

    fn read(params: &Params) -> Result<StdioSettings, ConfigErrors> {
        Faults::parse(params.clone())
    }

    fn fields(params: &Params) -> Vec<String> {
        let violations = read(params).unwrap_err().into_violations();
        violations.into_iter().map(|violation| violation.field).collect()
    }

    #[test]
    fn absent_fields_have_the_originals_defaults() {
        let settings = read(&Params::default()).unwrap();
        assert_eq!(settings.target, Target::Stdout);
        assert_eq!(settings.encoding, Encoding::Json);
        assert_eq!((settings.levels.metric, settings.levels.output), (Level::Info, Level::Info));
        let rotated = Params {
            log_stream: Stream::RotatedFile.into(),
            output_path: "/var/log/mixer.log".to_owned(),
            ..Default::default()
        };
        let rotation = Rotation { max_bytes: 104_857_600, max_age: Some(DAY * 30), max_files: Some(1000) };
        assert_eq!(read(&rotated).unwrap().rotation, Some(rotation));
    }

    #[test]
    fn zero_is_not_absent_where_it_means_something() {
        let params = Params {
            log_stream: Stream::RotatedFile.into(),
            output_path: "/var/log/mixer.log".to_owned(),
            max_megabytes_before_rotation: Some(0),
            max_days_before_rotation: Some(0),
            max_rotated_files: Some(0),
            output_as_json: Some(false),
            ..Default::default()
        };
        let settings = read(&params).unwrap();
        let rotation = Rotation { max_bytes: 104_857_600, max_age: None, max_files: None };
        assert_eq!(settings.rotation, Some(rotation));
        assert_eq!(settings.encoding, Encoding::Console);
    }

    #[test]
    fn fourteen_severities_are_known_and_configured_ones_take_their_place() {
        let known = read(&Params::default()).unwrap().levels;
        assert_eq!(known.severities.len(), 14);
        let of = |severity| known.of_severity(severity);
        let levels =
            ["informational", "INFO", "warning", "WARN", "ERR", "error", "fatal", "BOGUS", "Warn"].map(of);
        use Level::{Error, Info, Warning};
        assert_eq!(levels, [Info, Info, Warning, Warning, Error, Error, Error, Info, Info]);

        let severity_levels = [("odd".to_owned(), Level::Error.into())].into();
        let own = read(&Params { severity_levels, ..Default::default() }).unwrap().levels;
        assert_eq!((own.of_severity("odd"), own.of_severity("ERROR")), (Error, Info));
    }

    /// stdio_test.go, TestValidate.
    #[test]
    fn a_path_belongs_to_files_only() {
        for (stream, path) in
            [(Stream::Stdout, "123"), (Stream::Stderr, "123"), (Stream::File, ""), (Stream::RotatedFile, "")]
        {
            let params =
                Params { log_stream: stream.into(), output_path: path.to_owned(), ..Default::default() };
            assert_eq!(fields(&params), ["output_path"], "{stream:?}");
        }
    }

    #[test]
    fn each_fault_names_its_field() {
        let params = Params {
            log_stream: 4,
            severity_levels: [("odd".to_owned(), 3)].into(),
            metric_level: -1,
            output_level: 3,
            max_megabytes_before_rotation: Some(-1),
            max_days_before_rotation: Some(-1),
            max_rotated_files: Some(-1),
            ..Default::default()
        };
        let expected = [
            "log_stream",
            "max_megabytes_before_rotation",
            "max_days_before_rotation",
            "max_rotated_files",
            "severity_levels[\"odd\"]",
            "metric_level",
            "output_level",
        ];
        assert_eq!(fields(&params), expected);
    }
}
