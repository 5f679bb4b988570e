//! The NUMA nodes of a machine, and the nodes that threads are bound to.

use farside_sys::topology::{self, Bind, CpuSet, Topology};

/// The NUMA nodes of this process's machine, and where its threads are bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Nodes {
    /// The numbers of the nodes, ascending.
    ids: Vec<u32>,
    /// The node of each thread of this process, if it is bound to one.
    of_threads: Vec<Option<u32>>,
}

impl Nodes {
    /// The node of a machine that was not inspected.
    pub(crate) fn unknown() -> Self {
        Self { ids: vec![0], of_threads: Vec::new() }
    }

    /// The nodes of a machine, for process `index` of `count` processes with `threads` worker
    /// threads each.
    pub(crate) fn on(topology: &Topology, bind: Bind, index: usize, count: usize, threads: usize) -> Self {
        let places = topology::place(bind, index, count, threads, topology);
        let node_of = |cpus: CpuSet| {
            let mut nodes = cpus.iter().map(|cpu| topology.node_of(cpu).map(|node| node.id.0));
            let first = nodes.next()??;
            nodes.all(|node| node == Some(first)).then_some(first)
        };
        Self {
            ids: topology.numa_nodes.iter().map(|node| node.id.0).collect(),
            of_threads: places.into_iter().map(|place| place.and_then(node_of)).collect(),
        }
    }

    /// Returns whether there is a node of this number.
    pub(crate) fn has(&self, node: u32) -> bool {
        self.ids.contains(&node)
    }

    /// The node that a thread is bound to.
    pub(crate) fn of_thread(&self, local: usize) -> Option<u32> {
        self.of_threads.get(local).copied().flatten()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::*;

    /// A folder that imitates what a kernel shows.
    struct Machine(PathBuf);

    impl Machine {
        fn new(name: &str, cpus: &str, nodes: &[(u32, &str)]) -> Self {
            let root = std::env::temp_dir().join(format!("farside-near-{}-{name}", std::process::id()));
            let write = |path: &str, text: &str| {
                let path = root.join(path);
                fs::create_dir_all(path.parent().expect("it is in a folder")).unwrap();
                fs::write(path, text).unwrap();
            };
            write("sys/devices/system/cpu/online", cpus);
            for (id, cpus) in nodes {
                write(&format!("sys/devices/system/node/node{id}/cpulist"), cpus);
            }
            Self(root)
        }

        fn topology(&self, allowed: &str) -> Topology {
            Topology::read_from(Path::new(&self.0), allowed.parse().unwrap()).unwrap()
        }
    }

    impl Drop for Machine {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn workers_bound_to_cores_are_near_the_cores_nodes() {
        let machine = Machine::new("two", "0-7", &[(0, "0-3"), (1, "4-7")]);
        let topology = machine.topology("0-7");
        let nodes = Nodes::on(&topology, Bind::Core, 0, 2, 4);
        assert_eq!((nodes.ids.clone(), nodes.of_threads), (vec![0, 1], vec![Some(0); 4]));
        let nodes = Nodes::on(&topology, Bind::Core, 1, 2, 4);
        assert_eq!(nodes.of_threads, vec![Some(1); 4]);
        // One process on both nodes.
        let nodes = Nodes::on(&topology, Bind::Numa, 0, 1, 2);
        assert_eq!(nodes.of_threads, [Some(0), Some(1)]);
        assert!(nodes.has(1) && !nodes.has(2));
    }

    #[test]
    fn numbers_with_gaps_and_nodes_without_cpus_are_nodes() {
        let machine = Machine::new("gaps", "0-3", &[(0, "0-1"), (2, "\n"), (5, "2-3")]);
        let topology = machine.topology("2-3");
        let nodes = Nodes::on(&topology, Bind::Core, 0, 1, 3);
        assert_eq!(nodes.of_threads, vec![Some(5); 3], "only what is allowed is used");
        assert!(nodes.has(0) && nodes.has(2) && nodes.has(5) && !nodes.has(1));
    }

    #[test]
    fn unbound_threads_are_near_no_node() {
        let machine = Machine::new("unbound", "0-7", &[(0, "0-3"), (1, "4-7")]);
        let nodes = Nodes::on(&machine.topology("0-7"), Bind::None, 0, 1, 2);
        assert_eq!((nodes.of_thread(0), nodes.of_thread(1), nodes.of_thread(9)), (None, None, None));
        assert!(nodes.has(0));
    }

    #[test]
    fn a_kernel_that_shows_no_nodes_has_one() {
        let machine = Machine::new("plain", "0-1", &[]);
        let nodes = Nodes::on(&machine.topology("0-1"), Bind::Core, 0, 1, 2);
        assert_eq!(nodes.of_threads, [Some(0), Some(0)]);
        assert!(Nodes::unknown().has(0));
    }
}
