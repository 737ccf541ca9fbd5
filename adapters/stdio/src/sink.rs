use std::{
    io::{self, Stderr, Stdout},
    time::SystemTime,
};

use super::{
    file::{LogFile, Rotation},
    outlet::Target,
    whole_lines::WholeLines,
};

/// An open target.
#[derive(Debug)]
pub(super) enum Sink {
    Stdout(WholeLines<Stdout>),
    Stderr(WholeLines<Stderr>),
    File(LogFile),
}

impl Sink {
    /// May block, as may writing.
    pub(super) fn open(target: &Target, rotation: Option<Rotation>) -> io::Result<Self> {
        Ok(match target {
            Target::Stdout => Self::Stdout(WholeLines::new(io::stdout())),
            Target::Stderr => Self::Stderr(WholeLines::new(io::stderr())),
            Target::File(path) => {
                let file = LogFile::open(path.clone())?;
                if let Some(rotation) = rotation {
                    file.remove_old(rotation, SystemTime::now());
                }
                Self::File(file)
            }
        })
    }

    /// Writes whole lines. An error comes with those that were not written.
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
