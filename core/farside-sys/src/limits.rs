//! Resources that are still available on this machine and to this user.

use std::fs;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Bytes of memory that are available now: of the machine, within the memory limit of this control
/// group, or within this process's limit of addresses, whichever is least. `u64::MAX` if the system
/// reports none of them.
///
/// *Cost*: reads a few small files, about 50 µs.
pub fn available_memory_bytes() -> u64 {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| available_in_meminfo(&text));
    [machine, control_group_bytes(), free_address_bytes()].into_iter().flatten().min().unwrap_or(u64::MAX)
}

/// Bytes that this process may still map; `None` if there is no limit.
fn free_address_bytes() -> Option<u64> {
    let limit = getrlimit(Resource::As).current?;
    let pages: u64 = fs::read_to_string("/proc/self/statm").ok()?.split_whitespace().next()?.parse().ok()?;
    Some(limit.saturating_sub(pages.saturating_mul(rustix::param::page_size() as u64)))
}

/// Maximum size of a file that this process writes, also of shared memory; `None` if there is no
/// limit.
pub fn max_file_bytes() -> Option<u64> {
    getrlimit(Resource::Fsize).current
}

fn available_in_meminfo(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

fn control_group_bytes() -> Option<u64> {
    let membership = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = membership.lines().find_map(|line| line.strip_prefix("0::"))?;
    let number = |file: &str| -> Option<u64> {
        fs::read_to_string(format!("/sys/fs/cgroup{path}/{file}")).ok()?.trim().parse().ok()
    };
    Some(number("memory.max")?.saturating_sub(number("memory.current")?))
}

/// Maximum number of processes and threads of this user; `None` if there is no limit.
pub fn max_user_processes() -> Option<u64> {
    getrlimit(Resource::Nproc).current
}

/// Maximum number of open files of this process; `None` if there is no limit.
pub fn max_open_files() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// Raises the maximum number of open files of this process as far as the system allows.
pub fn raise_max_open_files() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    // The system may refuse; then the limit stays as it is.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_kernels_spelling() {
        let text = "MemTotal:       24623612 kB\nMemAvailable:   23012345 kB\n";
        assert_eq!(available_in_meminfo(text), Some(23_012_345 * 1024));
        assert_eq!(available_in_meminfo("MemAvailable: many kB\n"), None);
        assert_eq!(available_in_meminfo(""), None);
    }

    #[test]
    fn this_machine_has_some() {
        assert!(available_memory_bytes() > 0);
    }
}
