#![allow(clippy::unwrap_used)]

use std::{
    fs::{self, File},
    path::Path,
};

use super::{params::Stream, *};

fn file_params(stream: Stream, path: &Path) -> Params {
    Params {
        log_stream: stream.into(),
        output_path: path.to_str().unwrap().to_owned(),
        output_as_json: Some(false),
        ..Default::default()
    }
}

fn entry(name: &str, severity: &str) -> logentry::InstanceMsg {
    logentry::InstanceMsg { name: name.to_owned(), severity: severity.to_owned(), ..Default::default() }
}

async fn open(params: Params) -> Result<Stdio, AdapterError> {
    Context::detached(()).open_handler(params).await
}

async fn log(handler: &Stdio, entries: Vec<logentry::InstanceMsg>) -> Result<(), AdapterError> {
    Handle::<LogEntry>::handle(handler, entries.into()).await
}

/// stdio_test.go, TestBasic.
#[tokio::test]
async fn the_defaults_serve_both_templates() {
    let handler = open(Params::default()).await.unwrap();
    log(&handler, vec![]).await.unwrap();
    Handle::<Metric>::handle(&handler, Call::new(vec![])).await.unwrap();
    handler.close().await;
}

/// stdio_test.go, TestBuilder: streams and files.
#[tokio::test]
async fn streams_and_files_are_opened_and_directories_refused() {
    let directory = tempfile::tempdir().unwrap();
    for stream in [Stream::Stdout, Stream::Stderr] {
        open(Params { log_stream: stream.into(), ..Default::default() }).await.unwrap().close().await;
    }
    for stream in [Stream::File, Stream::RotatedFile] {
        let path = directory.path().join("made").join("mixer.log");
        open(file_params(stream, &path)).await.unwrap().close().await;
        let error = open(file_params(stream, directory.path())).await.unwrap_err();
        assert_eq!(error.violations()[0].field, "output_path");
        assert!(error.to_string().contains(directory.path().to_str().unwrap()), "{error}");
    }
}

#[tokio::test]
async fn close_leaves_every_line_in_the_file_after_those_that_were_there() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("mixer.log");
    fs::write(&path, "before\n").unwrap();
    let handler = open(file_params(Stream::File, &path)).await.unwrap();
    let time = mixer_adapter_core::value::TimeStamp { value: Some(Timestamp { seconds: 1, nanos: 0 }) };
    let timed = logentry::InstanceMsg { timestamp: Some(time), ..entry("b", "ERROR") };
    log(&handler, vec![entry("a", "INFO"), timed]).await.unwrap();
    let metric = metric::InstanceMsg { name: "c".to_owned(), value: Some(5.into()), ..Default::default() };
    Handle::<Metric>::handle(&handler, Call::new(vec![metric])).await.unwrap();
    handler.close().await;
    let text = fs::read_to_string(path).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[..3],
        ["before", "0001-01-01T00:00:00.000000Z\tinfo\ta", "1970-01-01T00:00:01.000000Z\terror\tb"]
    );
    assert!(lines[3].ends_with("Z\tinfo\tc\t{\"value\": 5}"), "{}", lines[3]);
    assert_eq!(lines.len(), 4);
}

#[tokio::test]
async fn lines_below_the_output_level_are_skipped() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("mixer.log");
    let params = Params {
        output_level: Level::Warning.into(),
        metric_level: Level::Error.into(),
        ..file_params(Stream::File, &path)
    };
    let handler = open(params).await.unwrap();
    log(&handler, vec![entry("a", "INFO"), entry("b", "WARNING"), entry("c", "ERROR")]).await.unwrap();
    let metric = metric::InstanceMsg { name: "d".to_owned(), ..Default::default() };
    Handle::<Metric>::handle(&handler, Call::new(vec![metric])).await.unwrap();
    handler.close().await;
    let text = fs::read_to_string(path).unwrap();
    let names: Vec<&str> = text.lines().filter_map(|line| line.split('\t').nth(2)).collect();
    assert_eq!(names, ["b", "c", "d"]);
}

/// Less than may wait, so that a slow disk loses nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn handlers_that_share_a_file_write_whole_lines() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("mixer.log");
    let context = Context::detached(());
    let handlers = (0..4).map(|number| {
        let context = context.clone();
        let params = Params {
            severity_levels: [(number.to_string(), Level::Info.into())].into(),
            max_megabytes_before_rotation: Some(1),
            ..file_params(Stream::RotatedFile, &path)
        };
        let name = number.to_string().repeat(200);
        tokio::spawn(async move {
            let handler: Stdio = context.open_handler(params).await.unwrap();
            for _ in 0..100 {
                log(&handler, vec![entry(&name, ""); 60]).await.unwrap();
            }
            handler.close().await;
        })
    });
    for handler in handlers.collect::<Vec<_>>() {
        handler.await.unwrap();
    }
    let mut lines = 0;
    for file in fs::read_dir(directory.path()).unwrap() {
        let file = file.unwrap();
        assert!(file.metadata().unwrap().len() <= 1024 * 1024, "{file:?}");
        for line in fs::read_to_string(file.path()).unwrap().lines() {
            let name = line.split('\t').nth(2).unwrap();
            assert!(name.len() == 200 && name.chars().all(|letter| name.starts_with(letter)), "{line}");
            lines += 1;
        }
    }
    assert_eq!(lines, 4 * 100 * 60);
    assert!(fs::read_dir(directory.path()).unwrap().count() >= 6);
}

/// A named pipe without a reader accepts 64 KiB; the rest is queued, and lines beyond the limit of the queue are lost and
/// counted.
#[cfg(unix)]
#[tokio::test]
async fn a_file_that_takes_nothing_blocks_nobody_and_what_is_lost_is_counted() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    let opened = std::thread::spawn({
        let path = path.clone();
        move || File::open(path).unwrap()
    });
    let handler = open(file_params(Stream::File, &path)).await.unwrap();
    let reader = opened.join().unwrap();

    let batch = vec![entry(&"x".repeat(1000), "INFO"); 1000];
    let mut told = 0;
    for _ in 0..20 {
        if let Err(error) = log(&handler, batch.clone()).await {
            assert_eq!(error.code(), Code::Unavailable);
            let lines: u64 = error.to_string().split(' ').next().unwrap().parse().unwrap();
            told += lines;
        }
    }
    let lost = handler.writer.lost();
    assert!(lost > 0);
    assert_eq!(told, lost);

    let reading = std::thread::spawn(move || std::io::read_to_string(reader).unwrap());
    handler.close().await;
    let text = reading.join().unwrap();
    assert_eq!(text.lines().count() as u64 + lost, 20 * 1000);
    assert!(text.lines().all(|line| line.ends_with(&"x".repeat(1000))));
}

/// stdio_test.go, TestWriteErrors: here one call, which may be a later one, reports the failure to write.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn lines_that_cannot_be_written_are_counted_and_reported() {
    let handler = open(file_params(Stream::File, Path::new("/dev/full"))).await.unwrap();
    // The writer can fail before or after the call returns.
    let first = log(&handler, vec![entry("a", "INFO"); 3]).await;
    while handler.writer.lost() == 0 {
        tokio::task::yield_now().await;
    }
    let error = first.and(log(&handler, vec![]).await).unwrap_err();
    assert!(error.to_string().starts_with("3 lines for /dev/full are lost: "), "{error}");
    log(&handler, vec![]).await.unwrap();
    handler.close().await;
}

#[tokio::test]
async fn a_file_is_closed_with_its_last_handler_and_opened_anew() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("mixer.log");
    let context = Context::detached(());
    for round in 1..=3 {
        let first: Stdio = context.clone().open_handler(file_params(Stream::File, &path)).await.unwrap();
        let second: Stdio = context.clone().open_handler(file_params(Stream::File, &path)).await.unwrap();
        log(&first, vec![entry("a", "")]).await.unwrap();
        first.close().await;
        log(&second, vec![entry("a", "")]).await.unwrap();
        second.close().await;
        assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 2 * round);
    }
}
