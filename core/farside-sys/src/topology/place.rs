//! Placement of a job's workers on CPUs.

use std::fmt;
use std::str::FromStr;

use super::cpu_set::{CpuId, CpuSet};
use super::{NumaNodeId, Topology};

/// The binding of workers to CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bind {
    /// No binding: the scheduler decides. The default, so that several jobs on one machine do not
    /// compete for the same CPUs.
    #[default]
    None,
    /// Each worker is bound to one core, with all its hardware threads.
    Core,
    /// Each worker is bound to one NUMA node.
    Numa,
}

impl fmt::Display for Bind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Bind::None => "none",
            Bind::Core => "core",
            Bind::Numa => "numa",
        })
    }
}

/// The text does not name a [`Bind`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid binding {0:?}: expected none, core or numa")]
pub struct ParseBindError(pub String);

impl FromStr for Bind {
    type Err = ParseBindError;

    fn from_str(text: &str) -> Result<Bind, ParseBindError> {
        match text {
            "none" => Ok(Bind::None),
            "core" => Ok(Bind::Core),
            "numa" => Ok(Bind::Numa),
            other => Err(ParseBindError(other.to_owned())),
        }
    }
}

/// The CPUs for each of the `threads` workers of process `process_index`, one of `process_count`
/// such processes on this machine. `None` leaves a worker unbound.
///
/// Workers are numbered through all processes: first those of process 0, then those of process 1,
/// and so on. Only allowed CPUs take part.
/// - [`Bind::Core`]: worker *w* gets core *w*, node by node. With more workers than cores, the
///   assignment starts over at the first core. Neighbouring workers are close to each other.
/// - [`Bind::Numa`]: the processes are spread over all nodes in contiguous runs, each node in
///   proportion to its cores. A process stays on one node, unless there are fewer processes than
///   nodes; then its workers are spread.
///
/// # Panics
///
/// If `process_index` is not below `process_count`.
#[track_caller]
pub fn place(
    bind: Bind,
    process_index: usize,
    process_count: usize,
    threads: usize,
    topology: &Topology,
) -> Vec<Option<CpuSet>> {
    assert!(
        process_index < process_count,
        "process {process_index} of {process_count} cannot be placed: the index must be smaller than the count"
    );
    let cores = cores_by_node(topology);
    if bind == Bind::None || cores.is_empty() {
        return vec![None; threads];
    }
    let first_worker = process_index * threads;
    let nodes_used = cores.chunk_by(|a, b| a.node == b.node).count();
    let core_of = |thread: usize| match bind {
        Bind::Numa if process_count >= nodes_used => process_index * cores.len() / process_count,
        Bind::Numa => (first_worker + thread) * cores.len() / (process_count * threads),
        Bind::Core | Bind::None => (first_worker + thread) % cores.len(),
    };
    (0..threads)
        .map(|thread| {
            let core = &cores[core_of(thread)];
            Some(if bind == Bind::Numa { node_cpus(&cores, core.node) } else { core.cpus.clone() })
        })
        .collect()
}

/// The allowed CPUs of one core, and its position.
struct Core {
    /// The node. `None`, for a CPU that the kernel assigns to no node, sorts first.
    node: Option<NumaNodeId>,
    first: CpuId,
    cpus: CpuSet,
}

/// The cores with an allowed CPU, node by node.
fn cores_by_node(topology: &Topology) -> Vec<Core> {
    let mut cores: Vec<Core> = topology
        .cores
        .iter()
        .filter_map(|core| {
            let cpus = core.intersection(&topology.cpus_allowed);
            let first = cpus.first()?;
            Some(Core { node: topology.node_of(first).map(|node| node.id), first, cpus })
        })
        .collect();
    cores.sort_by_key(|core| (core.node, core.first));
    cores
}

/// The allowed CPUs of a node.
fn node_cpus(cores: &[Core], node: Option<NumaNodeId>) -> CpuSet {
    cores.iter().filter(|core| core.node == node).fold(CpuSet::new(), |cpus, core| cpus.union(&core.cpus))
}
