//! Transparent huge pages.

/// Makes the process use pages of 4 kB only. An idle server hardly fills pages of 2 MB, which systems may give to every process.
///
/// Has no effect on systems other than Linux.
pub fn disable_huge_pages() {
    // Where it fails, the process takes more memory.
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}
