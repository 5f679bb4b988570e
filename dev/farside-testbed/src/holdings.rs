//! [`Holdings`]: what a process has.

/// The resources of a process. A test compares it before and after.
#[derive(Clone, Copy, Debug)]
pub struct Holdings {
    /// Its descriptors.
    pub descriptors: usize,
    /// Its threads.
    pub threads: u64,
    /// The resident bytes of its own memory.
    pub memory_bytes: u64,
}

impl Holdings {
    /// The resources of a process now, given its number or `self`. The process must exist.
    pub fn of(process: &str) -> Self {
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.split_whitespace().next().unwrap().parse::<u64>().unwrap()
        };
        Self {
            descriptors: std::fs::read_dir(format!("/proc/{process}/fd")).unwrap().count(),
            threads: field("Threads:"),
            memory_bytes: field("RssAnon:") << 10,
        }
    }
}
