use std::{fs, path::Path};

/// Returns the memory that this process can use in bytes: the limit of its container (cgroup v2 or v1), or the memory of the machine
/// if that is less. `None` if the system does not say.
pub fn available_memory() -> Option<u64> {
    read_limits(Path::new("/"))
}

fn read(root: &Path, path: &str) -> Option<String> {
    fs::read_to_string(root.join(path)).ok()
}

/// The least limit in the files of the system below `root`.
fn read_limits(root: &Path) -> Option<u64> {
    let machine = read(root, "proc/meminfo").and_then(|info| {
        let total = info.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        Some(total.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
    });
    // In a container its own group is mounted as the root; outside, the path of the group is in this file.
    let own = read(root, "proc/self/cgroup").unwrap_or_default();
    let groups = own.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    let paths = groups.flat_map(|group| {
        [
            format!("sys/fs/cgroup{group}/memory.max"),
            format!("sys/fs/cgroup/memory{group}/memory.limit_in_bytes"),
        ]
    });
    let mounted =
        ["sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory/memory.limit_in_bytes"].map(str::to_owned);
    // "max" means unlimited.
    let limits = paths.chain(mounted).filter_map(|path| read(root, &path)?.trim().parse().ok());
    limits.chain(machine).min()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::read_limits;
    use std::fs;

    fn limit(files: &[(&str, &str)]) -> Option<u64> {
        let root = tempfile::tempdir().unwrap();
        for (path, content) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        read_limits(root.path())
    }

    const MACHINE: (&str, &str) = ("proc/meminfo", "MemTotal:       1000 kB\nMemFree: 10 kB\n");

    #[test]
    fn the_least_of_machine_and_container_counts() {
        assert_eq!(limit(&[]), None);
        assert_eq!(limit(&[MACHINE]), Some(1_024_000));
        assert_eq!(limit(&[MACHINE, ("sys/fs/cgroup/memory.max", "max\n")]), Some(1_024_000));
        assert_eq!(limit(&[MACHINE, ("sys/fs/cgroup/memory.max", "4096\n")]), Some(4096));
        let v1 = ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(limit(&[MACHINE, v1]), Some(1_024_000));
    }

    #[test]
    fn the_group_of_the_process_counts() {
        let own = ("proc/self/cgroup", "0::/system.slice/adapter.service\n");
        let max = ("sys/fs/cgroup/system.slice/adapter.service/memory.max", "8192\n");
        assert_eq!(limit(&[MACHINE, own, max]), Some(8192));
        let own = ("proc/self/cgroup", "5:memory:/docker/1\n4:cpu:/docker/1\n");
        let max = ("sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes", "2048\n");
        assert_eq!(limit(&[MACHINE, own, max]), Some(2048));
    }
}
