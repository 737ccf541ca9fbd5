//! Log files with rotation. Not from a crate, because the names of rotated files and the limits follow the original.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, Write as _},
    path::Path,
    time::{Duration, SystemTime},
};

use mixer_adapter_core::{adapter::FileLocation, prost_types::Timestamp, value::format_timestamp};

use super::folder::Folder;

/// The limits of a rotated file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rotation {
    /// The maximum size of a file, which only a single line can exceed.
    pub(super) max_bytes: u64,
    /// The maximum age of rotated files.
    pub(super) max_age: Option<Duration>,
    /// The maximum number of rotated files.
    pub(super) max_files: Option<usize>,
}

/// A file that lines are appended to.
#[derive(Debug)]
pub(super) struct LogFile {
    location: FileLocation,
    folder: Folder,
    name: OsString,
    file: File,
    size: u64,
    /// Whether the last line was written in part.
    is_torn: bool,
    /// Whether the last rotation failed, which is logged once.
    rotation_failed: bool,
}

impl LogFile {
    /// Opens a file, which is created if necessary, including its directories.
    pub(super) fn open(location: FileLocation) -> io::Result<Self> {
        let folder = Folder::of(&location)?;
        let Some(name) = location.path.file_name().map(OsStr::to_owned) else {
            return Err(io::ErrorKind::IsADirectory.into());
        };
        let (file, size) = append(&folder, &name)?;
        Ok(Self { location, folder, name, file, size, is_torn: false, rotation_failed: false })
    }

    /// Appends lines that fit into the file, which is rotated before if none does. Returns the number of bytes written.
    #[expect(clippy::disallowed_methods, reason = "the caller writes the rest")]
    pub(super) fn write(
        &mut self,
        lines: &[u8],
        rotation: Option<Rotation>,
        now: SystemTime,
    ) -> io::Result<usize> {
        let due = match rotation {
            None => lines.len(),
            Some(_) if self.is_torn => first_line(lines),
            Some(rotation) => {
                let mut fit = self.whole_lines_within(lines, rotation);
                if fit == 0 && self.size > 0 && self.rotate(rotation, now) {
                    fit = self.whole_lines_within(lines, rotation);
                }
                // A line larger than the limit, or a file that cannot be renamed.
                if fit == 0 { first_line(lines) } else { fit }
            }
        };
        let written = self.file.write(&lines[..due])?;
        self.size += written as u64;
        self.is_torn = written > 0 && lines[written - 1] != b'\n';
        Ok(written)
    }

    /// Returns the length of the whole lines that fit.
    fn whole_lines_within(&self, lines: &[u8], rotation: Rotation) -> usize {
        let room = rotation.max_bytes.saturating_sub(self.size);
        let most = usize::try_from(room).map_or(lines.len(), |room| room.min(lines.len()));
        lines[..most].iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1)
    }

    /// Removes rotated files beyond the limits of age and number.
    pub(super) fn remove_old(&self, rotation: Rotation, now: SystemTime) {
        let mut backups = self.backups();
        backups.sort_unstable_by(|a, b| b.cmp(a));
        for (index, (renamed, name)) in backups.iter().enumerate() {
            let age = now.duration_since(*renamed).unwrap_or_default();
            let old = rotation.max_age.is_some_and(|max| age > max);
            if (old || rotation.max_files.is_some_and(|max| index >= max))
                && let Err(error) = self.folder.remove(name)
            {
                let path = self.location.path.with_file_name(name);
                tracing::warn!(path = %path.display(), %error, "removing a rotated file failed");
            }
        }
    }

    /// Renames the file and opens a new one. On failure, lines are still written to the current file.
    fn rotate(&mut self, rotation: Rotation, now: SystemTime) -> bool {
        let begun = self.free_name(now).and_then(|backup| {
            match self.folder.rename(&self.name, &backup) {
                // Another program moved the file.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                renamed => renamed?,
            }
            append(&self.folder, &self.name)
        });
        match begun {
            Ok((file, size)) => {
                self.file = file;
                self.size = size;
                self.rotation_failed = false;
                self.remove_old(rotation, now);
                true
            }
            Err(error) => {
                if !self.rotation_failed {
                    self.rotation_failed = true;
                    tracing::warn!(path = %self.location, %error, "rotating the file failed; it continues to grow");
                }
                false
            }
        }
    }

    /// Returns an unused name for the rotated file: `mixer-2026-01-02T03-04-05.678.log`.
    fn free_name(&self, now: SystemTime) -> io::Result<OsString> {
        let (prefix, suffix) = self.name_parts();
        let mut time = now;
        loop {
            let stamp = format_timestamp(time.into(), 3).replace(':', "-");
            let name = OsString::from(format!("{prefix}{}{suffix}", stamp.trim_end_matches('Z')));
            if !self.folder.contains(&name)? {
                return Ok(name);
            }
            time += Duration::from_millis(1);
        }
    }

    /// Returns the names of the rotated files with the times in them.
    fn backups(&self) -> Vec<(SystemTime, OsString)> {
        let (prefix, suffix) = self.name_parts();
        let renamed = |name: &OsStr| {
            let stamp = name.to_str()?.strip_prefix(&prefix)?.strip_suffix(&suffix)?;
            let (date, time) = stamp.split_once('T')?;
            let time: Timestamp = format!("{date}T{}Z", time.replace('-', ":")).parse().ok()?;
            SystemTime::try_from(time).ok()
        };
        let names = self.folder.names().into_iter();
        names.filter_map(|name| Some((renamed(&name)?, name))).collect()
    }

    /// Returns the parts before and after the time in the names of rotated files.
    fn name_parts(&self) -> (String, String) {
        let name = Path::new(&self.name);
        let stem = name.file_stem().unwrap_or_default().to_string_lossy();
        let suffix = name.extension().map(|extension| format!(".{}", extension.to_string_lossy()));
        (format!("{stem}-"), suffix.unwrap_or_default())
    }
}

fn append(folder: &Folder, name: &OsStr) -> io::Result<(File, u64)> {
    let file = folder.append(name)?;
    let size = file.metadata()?.len();
    Ok((file, size))
}

fn first_line(lines: &[u8]) -> usize {
    lines.iter().position(|byte| *byte == b'\n').map_or(lines.len(), |end| end + 1)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::{fs, path::PathBuf, time::UNIX_EPOCH};

    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    fn open(path: PathBuf) -> io::Result<LogFile> {
        LogFile::open(FileLocation { root: None, path })
    }

    fn rotation(max_bytes: u64) -> Rotation {
        Rotation { max_bytes, max_age: None, max_files: None }
    }

    fn write(file: &mut LogFile, mut lines: &[u8], rotation: Option<Rotation>, now: SystemTime) {
        while !lines.is_empty() {
            let written = file.write(lines, rotation, now).unwrap();
            lines = &lines[written..];
        }
    }

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_767_323_045 + seconds)
    }

    /// The files of a directory, by name, with what is in them.
    fn files(directory: &Path) -> Vec<(String, String)> {
        let mut files: Vec<(String, String)> = fs::read_dir(directory)
            .unwrap()
            .map(|file| {
                let file = file.unwrap();
                (file.file_name().into_string().unwrap(), fs::read_to_string(file.path()).unwrap())
            })
            .collect();
        files.sort();
        files
    }

    fn texts(directory: &Path) -> Vec<String> {
        files(directory).into_iter().map(|(_, text)| text).collect()
    }

    #[test]
    fn a_file_is_renamed_with_the_time_before_it_grows_too_large() {
        let directory = tempfile::tempdir().unwrap();
        let mut file = open(directory.path().join("mixer.log")).unwrap();
        for (second, line) in [(0, "aaaa\n"), (1, "bbbb\n"), (2, "cccc\n")] {
            write(&mut file, line.as_bytes(), Some(rotation(10)), at(second));
        }
        let expected = [("mixer-2026-01-02T03-04-07.000.log", "aaaa\nbbbb\n"), ("mixer.log", "cccc\n")];
        assert_eq!(files(directory.path()), expected.map(|(name, text)| (name.to_owned(), text.to_owned())));
    }

    #[test]
    fn many_lines_at_once_go_to_many_files_and_none_is_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        let mut file = open(directory.path().join("mixer")).unwrap();
        write(&mut file, b"a\nbb\nccc\ndddd\neeeeee\nf\n", Some(rotation(6)), at(0));
        assert_eq!(texts(directory.path()), ["f\n", "a\nbb\n", "ccc\n", "dddd\n", "eeeeee\n"]);
    }

    #[test]
    fn what_was_in_the_file_counts() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("mixer.log");
        fs::write(&path, "before\n").unwrap();
        let mut file = open(path).unwrap();
        write(&mut file, b"after\n", Some(rotation(10)), at(0));
        assert_eq!(texts(directory.path()), ["before\n", "after\n"]);
    }

    #[test]
    fn without_a_rotation_a_file_grows() {
        let directory = tempfile::tempdir().unwrap();
        let mut file = open(directory.path().join("mixer.log")).unwrap();
        for _ in 0..100 {
            write(&mut file, b"line\n", None, at(0));
        }
        assert_eq!(texts(directory.path()), ["line\n".repeat(100)]);
    }

    #[test]
    fn the_oldest_files_are_removed_where_there_are_too_many() {
        let directory = tempfile::tempdir().unwrap();
        let mut file = open(directory.path().join("mixer.log")).unwrap();
        let rotation = Rotation { max_files: Some(2), ..rotation(2) };
        for (second, line) in [(0, "a\n"), (1, "b\n"), (2, "c\n"), (3, "d\n"), (4, "e\n")] {
            write(&mut file, line.as_bytes(), Some(rotation), at(second));
        }
        assert_eq!(texts(directory.path()), ["c\n", "d\n", "e\n"]);
    }

    #[test]
    fn files_are_removed_when_the_time_in_their_name_is_too_long_ago_and_others_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let mut file = open(directory.path().join("mixer.log")).unwrap();
        let rotation = Rotation { max_age: Some(DAY), ..rotation(2) };
        for others in
            ["mixer-old.log", "mixer-2020-01-01T00-00-00.000.txt", "other-2020-01-01T00-00-00.000.log"]
        {
            fs::write(directory.path().join(others), "x\n").unwrap();
        }
        let day = DAY.as_secs();
        for (second, line) in [(0, "a\n"), (1, "b\n"), (day, "c\n"), (day + 2, "d\n")] {
            write(&mut file, line.as_bytes(), Some(rotation), at(second));
        }
        let texts: Vec<String> = texts(directory.path()).into_iter().filter(|text| text != "x\n").collect();
        assert_eq!(texts, ["b\n", "c\n", "d\n"]);
        assert_eq!(files(directory.path()).len(), 3 + texts.len());
    }

    #[test]
    fn a_file_moved_away_is_begun_anew() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("mixer.log");
        let mut file = open(path.clone()).unwrap();
        write(&mut file, b"a\n", Some(rotation(2)), at(0));
        fs::remove_file(&path).unwrap();
        write(&mut file, b"b\n", Some(rotation(2)), at(1));
        assert_eq!(texts(directory.path()), ["b\n"]);
    }

    #[test]
    fn where_a_file_cannot_be_renamed_its_lines_go_on_into_it() {
        let directory = tempfile::tempdir().unwrap();
        let inner = directory.path().join("inner");
        let mut file = open(inner.join("mixer.log")).unwrap();
        write(&mut file, b"a\n", Some(rotation(2)), at(0));
        // Without its directory the file has no name to rename and no place for a new one.
        let moved = directory.path().join("moved");
        fs::rename(&inner, &moved).unwrap();
        write(&mut file, b"b\nc\n", Some(rotation(2)), at(1));
        assert_eq!(texts(&moved), ["a\nb\nc\n"]);
    }

    #[test]
    fn below_a_root_files_are_made_and_rotated_and_no_link_leads_out() {
        let (root, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let location =
            |name: &str| FileLocation { root: Some(root.path().to_owned()), path: root.path().join(name) };
        let mut file = LogFile::open(location("made/here/mixer.log")).unwrap();
        write(&mut file, b"a\nb\nc\n", Some(Rotation { max_files: Some(1), ..rotation(2) }), at(0));
        assert_eq!(texts(&root.path().join("made/here")), ["b\n", "c\n"]);

        fs::write(outside.path().join("secret"), "untouched").unwrap();
        std::os::unix::fs::symlink(outside.path(), root.path().join("folder")).unwrap();
        std::os::unix::fs::symlink(outside.path().join("secret"), root.path().join("link.log")).unwrap();
        for linked in ["folder/mixer.log", "folder/secret", "link.log"] {
            let error = LogFile::open(location(linked)).unwrap_err();
            assert_eq!(error.to_string(), "a link leads out of --file-root", "{linked}");
        }
        assert_eq!(files(outside.path()), [("secret".to_owned(), "untouched".to_owned())]);
    }
}
