//! Transparent huge pages.

/// Makes the process use pages of 4 kB only. mimalloc asks for pages of 2 MB, which an idle server hardly fills.
///
/// Has no effect on systems other than Linux.
pub fn disable_huge_pages() {
    // Where it fails, the process takes more memory.
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}
