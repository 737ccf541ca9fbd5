//! How many files and sockets the process may have open at once.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit of open files and sockets to its hard limit, and returns it.
///
/// Linux starts processes with 1,024 of them for the sake of programs that use `select`, and lets them have more.
pub fn raise_open_files() -> usize {
    let limit = getrlimit(Resource::Nofile);
    // Where it fails, the limit stays as it is.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    max_open_files()
}

/// Returns how many files and sockets the process may have open.
pub fn max_open_files() -> usize {
    let limit = getrlimit(Resource::Nofile).current;
    limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
}
