//! The machine's topology: CPUs, cores, NUMA nodes and pages; and the placement of workers on it.
//!
//! Everything is read from the files of `/sys` and `/proc` below a given root, so that tests can
//! describe an imaginary machine: [`Topology::read_from`]. Where a kernel or a container hides a
//! file, the simplest assumption applies (one node, one thread per core); each field documents its
//! own. A file that exists but is malformed is an error.

mod affinity;
mod cpu_set;
mod host;
mod pages;
mod place;
mod quota;
mod tree;

use std::path::{Path, PathBuf};

pub use affinity::{AffinityError, bind_current_thread, current_affinity};
pub use cpu_set::{CpuId, CpuSet, Cpus, MAX_CPUS, ParseCpuSetError};
pub use host::{HostId, host_id, hostname};
pub use pages::{HugePagePolicy, HugePages};
pub use place::{Bind, ParseBindError, place};
pub use quota::CpuQuota;

use tree::Tree;

/// One machine, as this process may use it.
///
/// ```
/// use farside_sys::topology::Topology;
///
/// let machine = Topology::of_this_machine()?;
/// assert!(!machine.cpus_allowed.is_empty());
/// println!("{} of {} CPUs", machine.cpus_allowed.len(), machine.cpus_online.len());
/// # Ok::<(), farside_sys::topology::TopologyError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Topology {
    /// The CPUs that are online and that this process may run on.
    pub cpus_allowed: CpuSet,
    /// The CPUs that are online. If the kernel does not report them: those allowed.
    pub cpus_online: CpuSet,
    /// The NUMA nodes, ascending. If the kernel reports none: one node that holds everything.
    pub numa_nodes: Vec<NumaNode>,
    /// The online hardware threads of each core, by first CPU. If the kernel does not report them:
    /// one thread per core.
    pub cores: Vec<CpuSet>,
    /// The sizes of huge page that can be reserved, ascending, with their counts.
    pub huge_pages: Vec<HugePages>,
    /// The policy of transparent huge pages for private memory; `None` if this kernel has none.
    pub transparent_huge_pages: Option<HugePagePolicy>,
    /// The policy of transparent huge pages for shared memory; `None` if this kernel has none.
    pub shmem_huge_pages: Option<HugePagePolicy>,
    /// The size of an ordinary page.
    pub page_bytes: usize,
    /// The CPU time that this process's control group may use; `None` if it is unlimited or not
    /// reported.
    pub cpu_quota: Option<CpuQuota>,
}

/// The kernel's number of a NUMA node. Numbers may have gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NumaNodeId(pub u32);

/// One NUMA node: CPUs and the memory that is close to them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NumaNode {
    /// The kernel's number of the node.
    pub id: NumaNodeId,
    /// Its CPUs that are online. Empty for a node that has only memory.
    pub cpus: CpuSet,
    /// The size of its memory; 0 if the kernel does not report it.
    pub memory_bytes: u64,
}

/// Why the topology could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TopologyError {
    /// A file exists but cannot be read.
    #[error("cannot read {path}: {source}; check that /sys and /proc are mounted as usual", path = path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// A file that should hold a list of CPUs holds something else.
    #[error("cannot read a list of CPUs from {path}: {source}", path = path.display())]
    CpuList {
        /// The file.
        path: PathBuf,
        /// The fault in its text.
        source: ParseCpuSetError,
    },
    /// A file does not have the form that the kernel documents for it.
    #[error("cannot parse {path}: expected {expected}, found {text:?}", path = path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The expected contents.
        expected: &'static str,
        /// The text that was found.
        text: String,
    },
    /// The kernel did not report where this thread may run.
    #[error("cannot find out on which CPUs this thread may run")]
    Affinity(#[from] AffinityError),
}

impl Topology {
    /// Reads the topology of this machine, as the current thread may use it.
    ///
    /// *Cost*: a few system calls for each CPU and node; some milliseconds on a large machine. Keep
    /// the value.
    ///
    /// # Errors
    ///
    /// [`TopologyError`] if a file is unreadable or malformed. A missing file is not an error.
    pub fn of_this_machine() -> Result<Topology, TopologyError> {
        Topology::read_from(Path::new("/"), current_affinity()?)
    }

    /// Reads the topology from the `sys` and `proc` folders below `root`, for a thread that may run
    /// on `affinity`.
    ///
    /// Only the size of an ordinary page comes from the running system.
    ///
    /// # Errors
    ///
    /// [`TopologyError`] if a file is unreadable or malformed. A missing file is not an error.
    pub fn read_from(root: &Path, affinity: CpuSet) -> Result<Topology, TopologyError> {
        let tree = Tree::new(root);
        let cpus_online = match tree.cpu_list("sys/devices/system/cpu/online")? {
            Some(online) => online,
            None => affinity.clone(),
        };
        Ok(Topology {
            numa_nodes: read_nodes(&tree, &cpus_online)?,
            cores: read_cores(&tree, &cpus_online)?,
            huge_pages: pages::read_huge_pages(&tree)?,
            transparent_huge_pages: pages::read_policy(&tree, "enabled")?,
            shmem_huge_pages: pages::read_policy(&tree, "shmem_enabled")?,
            page_bytes: rustix::param::page_size(),
            cpu_quota: quota::read(&tree)?,
            cpus_allowed: affinity.intersection(&cpus_online),
            cpus_online,
        })
    }

    /// The node that `cpu` belongs to.
    pub fn node_of(&self, cpu: CpuId) -> Option<&NumaNode> {
        self.numa_nodes.iter().find(|node| node.cpus.contains(cpu))
    }
}

fn read_nodes(tree: &Tree<'_>, online: &CpuSet) -> Result<Vec<NumaNode>, TopologyError> {
    let mut nodes = Vec::new();
    for id in tree.numbered("sys/devices/system/node", "node", "")? {
        let folder = format!("sys/devices/system/node/node{id}");
        let cpus = tree.cpu_list(&format!("{folder}/cpulist"))?.unwrap_or_default();
        let memory_bytes = tree.memory_total(&format!("{folder}/meminfo"))?.unwrap_or(0);
        nodes.push(NumaNode { id: NumaNodeId(id), cpus: cpus.intersection(online), memory_bytes });
    }
    if nodes.is_empty() {
        let memory_bytes = tree.memory_total("proc/meminfo")?.unwrap_or(0);
        nodes.push(NumaNode { id: NumaNodeId(0), cpus: online.clone(), memory_bytes });
    }
    Ok(nodes)
}

fn read_cores(tree: &Tree<'_>, online: &CpuSet) -> Result<Vec<CpuSet>, TopologyError> {
    let mut cores = Vec::new();
    let mut placed = CpuSet::new();
    for cpu in online.iter() {
        if placed.contains(cpu) {
            continue;
        }
        let siblings = format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
        let mut core = tree.cpu_list(&siblings)?.unwrap_or_default().intersection(online).difference(&placed);
        core.insert(cpu);
        placed = placed.union(&core);
        cores.push(core);
    }
    Ok(cores)
}
