//! Open targets.

use std::{
    io::{self, Write},
    sync::Arc,
    time::SystemTime,
};

use parking_lot::Mutex;
use tokio::sync::OwnedSemaphorePermit;

use super::{
    file::{LogFile, Rotation},
    target::Target,
};

/// The rotation of a target, which the last handler that was opened determines.
pub(super) type SharedRotation = Arc<Mutex<Option<Rotation>>>;

/// An open target.
pub(super) struct Sink {
    output: Output,
    rotation: SharedRotation,
    _thread: OwnedSemaphorePermit,
}

enum Output {
    Stream(Box<dyn Write + Send>),
    File(LogFile),
}

impl Sink {
    /// Opens a target, and counts as a thread until it is dropped. This and writing may block.
    pub(super) fn open(
        target: &Target,
        rotation: SharedRotation,
        thread: OwnedSemaphorePermit,
    ) -> io::Result<Self> {
        let output = match target {
            Target::Stdout => Output::Stream(Box::new(io::stdout())),
            Target::Stderr => Output::Stream(Box::new(io::stderr())),
            Target::File(location) => {
                let file = LogFile::open(location.clone())?;
                if let Some(rotation) = *rotation.lock() {
                    file.remove_old(rotation, SystemTime::now());
                }
                Output::File(file)
            }
        };
        Ok(Self { output, rotation, _thread: thread })
    }
}

impl Write for Sink {
    #[expect(clippy::disallowed_methods, reason = "the caller writes the rest")]
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        match &mut self.output {
            Output::Stream(stream) => stream.write(lines),
            Output::File(file) => file.write(lines, *self.rotation.lock(), SystemTime::now()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.output {
            Output::Stream(stream) => stream.flush(),
            // Not buffered.
            Output::File(_) => Ok(()),
        }
    }
}
