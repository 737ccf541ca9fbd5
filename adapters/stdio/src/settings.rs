//! The configuration with the defaults of the original.

use std::{collections::BTreeMap, path::Path, time::Duration};

use mixer_adapter_core::adapter::{Access, ConfigErrors};

use super::{
    Params,
    config::params::{Level, Stream},
    file::Rotation,
    line::Encoding,
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
pub(super) struct Settings {
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

impl Settings {
    /// Validates a configuration and reports all faults. `access` must allow the file.
    pub(super) fn read(params: &Params, access: &Access) -> Result<Self, ConfigErrors> {
        let mut errors = ConfigErrors::default();
        let stream = Stream::try_from(params.log_stream).unwrap_or_else(|_| {
            errors.push("log_stream", "must be STDOUT, STDERR, FILE or ROTATED_FILE");
            Stream::Stdout
        });
        let target = read_target(stream, &params.output_path, access, &mut errors);
        let rotation = Rotation {
            max_bytes: match read_count(
                params.max_megabytes_before_rotation,
                "max_megabytes_before_rotation",
                &mut errors,
            ) {
                None | Some(0) => 100,
                Some(megabytes) => u64::from(megabytes),
            } * MEGABYTE,
            max_age: match read_count(
                params.max_days_before_rotation,
                "max_days_before_rotation",
                &mut errors,
            ) {
                None => Some(DAY * 30),
                Some(0) => None,
                Some(days) => Some(DAY * days),
            },
            max_files: match read_count(params.max_rotated_files, "max_rotated_files", &mut errors) {
                None => Some(1000),
                Some(0) => None,
                Some(files) => usize::try_from(files).ok(),
            },
        };
        let levels = Levels {
            severities: read_severities(&params.severity_levels, &mut errors),
            metric: read_level(params.metric_level, "metric_level", &mut errors),
            output: read_level(params.output_level, "output_level", &mut errors),
        };
        errors.into_result()?;
        Ok(Self {
            target,
            rotation: (stream == Stream::RotatedFile).then_some(rotation),
            encoding: if params.output_as_json.unwrap_or(true) { Encoding::Json } else { Encoding::Console },
            levels,
        })
    }
}

fn read_target(stream: Stream, path: &str, access: &Access, errors: &mut ConfigErrors) -> Target {
    let standard = match stream {
        Stream::Stdout => Some(Target::Stdout),
        Stream::Stderr => Some(Target::Stderr),
        Stream::File | Stream::RotatedFile => None,
    };
    match standard {
        Some(target) => {
            if !path.is_empty() {
                errors.push("output_path", "must be empty if log_stream is STDOUT or STDERR");
            }
            target
        }
        None if path.is_empty() => {
            errors.push("output_path", "must be a file if log_stream is FILE or ROTATED_FILE");
            Target::Stdout
        }
        None => match access.file("output_path", Path::new(path)) {
            Ok(location) => Target::File(location),
            Err(refused) => {
                errors.extend(refused);
                Target::Stdout
            }
        },
    }
}

fn read_severities(given: &BTreeMap<String, i32>, errors: &mut ConfigErrors) -> BTreeMap<String, Level> {
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
            (severity.clone(), read_level(*level, &format!("severity_levels[{severity:?}]"), errors))
        })
        .collect()
}

fn read_level(given: i32, path: &str, errors: &mut ConfigErrors) -> Level {
    Level::try_from(given).unwrap_or_else(|_| {
        errors.push(path, "must be INFO, WARNING or ERROR");
        Level::Info
    })
}

fn read_count(given: Option<i32>, path: &str, errors: &mut ConfigErrors) -> Option<u32> {
    let given = given?;
    u32::try_from(given).map_err(|_| errors.push(path, "must not be negative")).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn read(params: &Params) -> Result<Settings, ConfigErrors> {
        Settings::read(params, &Access::unrestricted())
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
