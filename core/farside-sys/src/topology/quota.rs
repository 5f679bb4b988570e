//! The CPU time that a control group grants to this process.

use std::path::{Component, Path, PathBuf};

use super::TopologyError;
use super::tree::Tree;

/// A limit on CPU time: an amount per period, over all CPUs together.
///
/// On a machine of 64 CPUs, a process with the time of two should be treated as if there were two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CpuQuota {
    /// The CPU time granted in a period.
    pub quota_us: u64,
    /// The length of a period.
    pub period_us: u64,
}

impl CpuQuota {
    /// The number of CPUs that this time equals.
    pub fn cpus(self) -> f64 {
        self.quota_us as f64 / self.period_us as f64
    }

    fn is_below(self, other: CpuQuota) -> bool {
        // Compares cross products, to stay in whole numbers.
        u128::from(self.quota_us) * u128::from(other.period_us)
            < u128::from(other.quota_us) * u128::from(self.period_us)
    }
}

/// The narrowest quota of this process's control group and of all groups above it, in both versions
/// of control groups.
pub(super) fn read(tree: &Tree<'_>) -> Result<Option<CpuQuota>, TopologyError> {
    let Some(groups) = tree.text("proc/self/cgroup")? else { return Ok(None) };
    let mut narrowest: Option<CpuQuota> = None;
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(group)) = (fields.next(), fields.next(), fields.next()) else {
            return Err(tree.malformed("proc/self/cgroup", "lines \"number:controllers:path\"", line));
        };
        let (mounts, read_one): (&[&str], ReadQuota) = match controllers {
            "" => (&["sys/fs/cgroup", "sys/fs/cgroup/unified"], read_v2),
            list if list.split(',').any(|name| name == "cpu") => (&["sys/fs/cgroup/cpu"], read_v1),
            _ => continue,
        };
        for folder in mounts.iter().flat_map(|mount| folders_upwards(mount, group)) {
            let found = read_one(tree, &folder)?;
            narrowest = match (narrowest, found) {
                (Some(held), Some(found)) if !found.is_below(held) => Some(held),
                (held, found) => found.or(held),
            };
        }
    }
    Ok(narrowest)
}

type ReadQuota = fn(&Tree<'_>, &Path) -> Result<Option<CpuQuota>, TopologyError>;

/// Lists the folder of `group` under `mount`, and every folder above it up to `mount`.
///
/// In a container the kernel may name a group that is not visible here: its path contains `..`, or
/// its folder is missing. Invisible folders are skipped.
fn folders_upwards(mount: &str, group: &str) -> Vec<PathBuf> {
    let mut folder = PathBuf::from(mount);
    let mut folders = vec![folder.clone()];
    for component in Path::new(group).components() {
        if let Component::Normal(name) = component {
            folder.push(name);
            folders.push(folder.clone());
        }
    }
    folders
}

/// Reads `cpu.max`: `QUOTA PERIOD` or `max PERIOD`.
fn read_v2(tree: &Tree<'_>, folder: &Path) -> Result<Option<CpuQuota>, TopologyError> {
    let path = folder.join("cpu.max");
    let Some(text) = tree.text(&path)? else { return Ok(None) };
    match text.split_once(' ') {
        Some(("max", _)) => Ok(None),
        Some((quota, period)) => match (quota.parse(), period.parse()) {
            (Ok(quota_us), Ok(period_us)) if period_us > 0 => Ok(Some(CpuQuota { quota_us, period_us })),
            _ => Err(tree.malformed(&path, "a quota and a period", &text)),
        },
        None => Err(tree.malformed(&path, "a quota and a period", &text)),
    }
}

/// Reads `cpu.cfs_quota_us` (-1 for no limit) and `cpu.cfs_period_us`.
fn read_v1(tree: &Tree<'_>, folder: &Path) -> Result<Option<CpuQuota>, TopologyError> {
    let quota_path = folder.join("cpu.cfs_quota_us");
    let (Some(quota), Some(period)) = (tree.text(&quota_path)?, tree.text(folder.join("cpu.cfs_period_us"))?) else {
        return Ok(None);
    };
    if quota == "-1" {
        return Ok(None);
    }
    match (quota.parse(), period.parse()) {
        (Ok(quota_us), Ok(period_us)) if period_us > 0 => Ok(Some(CpuQuota { quota_us, period_us })),
        _ => Err(tree.malformed(&quota_path, "a quota, with a period beside it", &format!("{quota} / {period}"))),
    }
}
