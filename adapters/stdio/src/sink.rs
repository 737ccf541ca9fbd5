//! Open targets.

use std::{
    io::{self, Stderr, Stdout},
    time::SystemTime,
};

use super::{
    file::{LogFile, Rotation},
    line_writer::LineWriter,
    target::Target,
};

/// An open target.
#[derive(Debug)]
pub(super) enum Sink {
    Stdout(LineWriter<Stdout>),
    Stderr(LineWriter<Stderr>),
    File(LogFile),
}

impl Sink {
    /// Opens a target. This and writing may block.
    pub(super) fn open(target: &Target, rotation: Option<Rotation>) -> io::Result<Self> {
        Ok(match target {
            Target::Stdout => Self::Stdout(LineWriter::new(io::stdout())),
            Target::Stderr => Self::Stderr(LineWriter::new(io::stderr())),
            Target::File(location) => {
                let file = LogFile::open(location.clone())?;
                if let Some(rotation) = rotation {
                    file.remove_old(rotation, SystemTime::now());
                }
                Self::File(file)
            }
        })
    }

    /// Writes whole lines.
    ///
    /// # Errors
    /// The error and the lines that were not written.
    pub(super) fn write<'a>(
        &mut self,
        lines: &'a [u8],
        rotation: Option<Rotation>,
    ) -> Result<(), (&'a [u8], io::Error)> {
        match self {
            Self::Stdout(stdout) => stdout.write(lines),
            Self::Stderr(stderr) => stderr.write(lines),
            Self::File(file) => file.write(lines, rotation, SystemTime::now()),
        }
    }
}
