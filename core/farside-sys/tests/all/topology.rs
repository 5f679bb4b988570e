//! Topologies of imaginary machines, and of this one.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use farside_sys::topology::{
    AffinityError, Bind, CpuSet, HugePagePolicy, NumaNodeId, Topology, TopologyError, bind_current_thread,
    current_affinity, place,
};

/// A folder with the files of one imaginary machine, removed when dropped.
struct Machine {
    root: PathBuf,
}

impl Machine {
    fn new() -> Machine {
        static MACHINES: AtomicUsize = AtomicUsize::new(0);

        let number = MACHINES.fetch_add(1, Ordering::Relaxed);
        let name = format!("topology-{}-{number}", std::process::id());
        let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&root).expect("the test's folder is writable");
        Machine { root }
    }

    fn file(self, path: &str, text: &str) -> Machine {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().expect("every file is in a folder")).expect("the test's folder is writable");
        fs::write(path, text).expect("the test's folder is writable");
        self
    }

    fn core(self, threads: &[u32]) -> Machine {
        let list: Vec<String> = threads.iter().map(u32::to_string).collect();
        threads.iter().fold(self, |machine, cpu| {
            machine.file(
                &format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"),
                &format!("{}\n", list.join(",")),
            )
        })
    }

    fn node(self, id: u32, cpus: &str, kilobytes: u64) -> Machine {
        let folder = format!("sys/devices/system/node/node{id}");
        let meminfo = format!("Node {id} MemTotal:  {kilobytes} kB\nNode {id} MemFree:  1 kB\n");
        self.file(&format!("{folder}/cpulist"), &format!("{cpus}\n")).file(&format!("{folder}/meminfo"), &meminfo)
    }

    fn read(&self, affinity: &str) -> Result<Topology, TopologyError> {
        Topology::read_from(&self.root, set(affinity))
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // A folder left behind fails no test, and the next build removes it.
        let _ = fs::remove_dir_all(&self.root);
    }
}

fn set(text: &str) -> CpuSet {
    text.parse().expect(text)
}

fn sets<'a>(texts: impl IntoIterator<Item = &'a str>) -> Vec<CpuSet> {
    texts.into_iter().map(set).collect()
}

/// One node, two cores of one thread each.
fn small() -> Machine {
    Machine::new()
        .file("sys/devices/system/cpu/online", "0-1\n")
        .core(&[0])
        .core(&[1])
        .node(0, "0-1", 4096)
        .file("sys/devices/system/node/online", "0\n")
}

/// Two nodes of 8 cores of 2 threads, with the usual numbering: first threads 0-15, then second
/// threads 16-31.
fn large() -> Machine {
    (0..16)
        .fold(Machine::new(), |machine, core| machine.core(&[core, core + 16]))
        .file("sys/devices/system/cpu/online", "0-31\n")
        .node(0, "0-7,16-23", 1 << 20)
        .node(1, "8-15,24-31", 1 << 21)
}

fn placed(bind: Bind, process_count: usize, threads: usize, topology: &Topology) -> Vec<String> {
    let text = |cpus: Option<CpuSet>| cpus.map_or("-".to_owned(), |cpus| cpus.to_string());
    (0..process_count).flat_map(|process| place(bind, process, process_count, threads, topology)).map(text).collect()
}

#[test]
fn one_node_of_two_cpus() -> Result<(), TopologyError> {
    let topology = small().read("0-1")?;
    assert_eq!(topology.cpus_online, set("0-1"));
    assert_eq!(topology.cpus_allowed, set("0-1"));
    assert_eq!(topology.cores, sets(["0", "1"]));
    let [node] = topology.numa_nodes.as_slice() else { panic!("{:?}", topology.numa_nodes) };
    assert_eq!((node.id, &node.cpus, node.memory_bytes), (NumaNodeId(0), &set("0-1"), 4096 * 1024));
    assert_eq!(topology.page_bytes, rustix::param::page_size());
    assert!(topology.huge_pages.is_empty());
    assert_eq!(topology.transparent_huge_pages, None);
    assert_eq!(topology.cpu_quota, None);
    Ok(())
}

#[test]
fn two_nodes_of_hyperthreads() -> Result<(), TopologyError> {
    let topology = large().read("0-31")?;
    assert_eq!(topology.cores.len(), 16);
    assert_eq!(topology.cores[3], set("3,19"));
    assert_eq!(topology.numa_nodes.len(), 2);
    assert_eq!(topology.numa_nodes[1].cpus, set("8-15,24-31"));
    assert_eq!(topology.numa_nodes[1].memory_bytes, 1 << 31);
    let node_of = |cpu| topology.node_of(cpu).map(|node| node.id);
    assert!(set("8-15,24-31").iter().all(|cpu| node_of(cpu) == Some(NumaNodeId(1))));
    assert!(set("32").iter().all(|cpu| node_of(cpu).is_none()));
    Ok(())
}

#[test]
fn offline_cpus_leave_holes() -> Result<(), TopologyError> {
    let machine = large().file("sys/devices/system/cpu/online", "0-2,5,16,21,30\n");
    let topology = machine.read("1-40")?;
    assert_eq!(topology.cpus_allowed, set("1-2,5,16,21,30"));
    assert_eq!(topology.cores, sets(["0,16", "1", "2", "5,21", "30"]));
    assert_eq!(topology.numa_nodes[0].cpus, set("0-2,5,16,21"));
    assert_eq!(topology.numa_nodes[1].cpus, set("30"));
    // CPU 0 is not allowed, so its core takes part with its other thread alone, and sorts after the
    // cores it preceded.
    assert_eq!(placed(Bind::Core, 6, 1, &topology), ["1", "2", "5,21", "16", "30", "1"]);
    Ok(())
}

#[test]
fn without_node_folder_everything_is_one_node() -> Result<(), TopologyError> {
    let machine = Machine::new()
        .file("sys/devices/system/cpu/online", "0-3\n")
        .file("proc/meminfo", "MemTotal:       1000 kB\nMemFree: 1 kB\n");
    let topology = machine.read("0-3")?;
    assert_eq!(topology.numa_nodes.len(), 1);
    assert_eq!(topology.numa_nodes[0].cpus, set("0-3"));
    assert_eq!(topology.numa_nodes[0].memory_bytes, 1_024_000);
    assert_eq!(topology.cores, sets(["0", "1", "2", "3"]));
    Ok(())
}

#[test]
fn an_empty_tree_is_a_machine_of_the_allowed_cpus() -> Result<(), TopologyError> {
    let topology = Machine::new().read("2,4")?;
    assert_eq!(topology.cpus_online, set("2,4"));
    assert_eq!(topology.cores, sets(["2", "4"]));
    assert_eq!(topology.numa_nodes[0].cpus, set("2,4"));
    assert_eq!(topology.numa_nodes[0].memory_bytes, 0);
    Ok(())
}

#[test]
fn a_node_of_memory_only_has_no_cpus() -> Result<(), TopologyError> {
    let topology = small().node(10, "", 8).node(2, "", 16).read("0-1")?;
    let ids: Vec<u32> = topology.numa_nodes.iter().map(|node| node.id.0).collect();
    assert_eq!(ids, [0, 2, 10]);
    assert!(topology.numa_nodes[2].cpus.is_empty());
    assert_eq!(topology.numa_nodes[2].memory_bytes, 8192);
    assert_eq!(placed(Bind::Numa, 2, 1, &topology), ["0-1", "0-1"]);
    Ok(())
}

#[test]
fn huge_pages_and_policies() -> Result<(), TopologyError> {
    let machine = small()
        .file("sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages", "0\n")
        .file("sys/kernel/mm/hugepages/hugepages-1048576kB/free_hugepages", "0\n")
        .file("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "512\n")
        .file("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "500\n")
        .file("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n")
        .file("sys/kernel/mm/transparent_hugepage/shmem_enabled", "always within_size advise [never] deny force\n");
    let topology = machine.read("0")?;
    let pages: Vec<_> = topology.huge_pages.iter().map(|pages| (pages.page_bytes, pages.total, pages.free)).collect();
    assert_eq!(pages, [(2 << 20, 512, 500), (1 << 30, 0, 0)]);
    assert_eq!(topology.transparent_huge_pages, Some(HugePagePolicy::OnAdvice));
    assert_eq!(topology.shmem_huge_pages, Some(HugePagePolicy::Never));
    assert!(HugePagePolicy::OnAdvice.grants_on_advice());
    assert!(!HugePagePolicy::Never.grants_on_advice());
    Ok(())
}

#[test]
fn the_narrowest_quota_above_the_process_counts() -> Result<(), TopologyError> {
    let v2 = Machine::new()
        .file("proc/self/cgroup", "0::/outer/inner\n")
        .file("sys/fs/cgroup/outer/cpu.max", "150000 100000\n")
        .file("sys/fs/cgroup/outer/inner/cpu.max", "max 100000\n");
    assert_eq!(v2.read("0")?.cpu_quota.map(|quota| quota.cpus()), Some(1.5));

    let v1 = Machine::new()
        .file("proc/self/cgroup", "4:memory:/x\n3:cpu,cpuacct:/../job\n0::/\n")
        .file("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n")
        .file("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n")
        .file("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "50000\n")
        .file("sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "200000\n");
    assert_eq!(v1.read("0")?.cpu_quota.map(|quota| quota.cpus()), Some(0.25));

    let unlimited = Machine::new().file("proc/self/cgroup", "0::/a\n");
    assert_eq!(unlimited.read("0")?.cpu_quota, None);
    Ok(())
}

#[test]
fn nonsense_is_an_error_that_names_the_file() {
    let cases = [
        ("sys/devices/system/cpu/online", "0-1;3"),
        ("sys/devices/system/cpu/cpu0/topology/thread_siblings_list", "0-"),
        ("sys/devices/system/node/node0/cpulist", "all"),
        ("sys/devices/system/node/node0/meminfo", "nothing"),
        ("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "-1"),
        ("sys/kernel/mm/transparent_hugepage/enabled", "always never"),
        ("proc/self/cgroup", "what"),
        ("sys/fs/cgroup/cpu.max", "1000 0"),
    ];
    for (path, text) in cases {
        let machine = Machine::new()
            .file("sys/devices/system/cpu/online", "0-1")
            .node(0, "0-1", 1)
            .file("proc/self/cgroup", "0::/")
            .file(path, text);
        let error = machine.read("0-1").expect_err(path);
        assert!(error.to_string().contains(path), "{error}");
    }
}

#[test]
fn unbound_workers_stay_unbound() -> Result<(), TopologyError> {
    let topology = small().read("0-1")?;
    assert_eq!(placed(Bind::None, 2, 3, &topology), ["-"; 6]);
    assert_eq!(placed(Bind::Core, 2, 0, &topology), [""; 0]);
    // No allowed CPU is known to be online, so workers stay unbound.
    assert_eq!(placed(Bind::Core, 1, 2, &small().read("7")?), ["-"; 2]);
    Ok(())
}

#[test]
fn cores_are_dealt_in_order_and_again_when_they_run_out() -> Result<(), TopologyError> {
    let topology = large().read("0-31")?;
    assert_eq!(placed(Bind::Core, 2, 2, &topology), ["0,16", "1,17", "2,18", "3,19"]);
    let all = placed(Bind::Core, 9, 2, &topology);
    assert_eq!(all[15], "15,31");
    assert_eq!(all[16..], ["0,16", "1,17"]);
    let all = placed(Bind::Core, 5, 1, &small().read("0-1")?);
    assert_eq!(all, ["0", "1", "0", "1", "0"]);
    Ok(())
}

#[test]
fn nodes_are_shared_out_by_their_cores() -> Result<(), TopologyError> {
    let topology = large().read("0-31")?;
    let (a, b) = ("0-7,16-23", "8-15,24-31");
    assert_eq!(placed(Bind::Numa, 1, 1, &topology), [a]);
    assert_eq!(placed(Bind::Numa, 1, 4, &topology), [a, a, b, b]);
    assert_eq!(placed(Bind::Numa, 2, 1, &topology), [a, b]);
    assert_eq!(placed(Bind::Numa, 3, 2, &topology), [a, a, a, a, b, b]);
    assert_eq!(placed(Bind::Numa, 64, 1, &topology)[30..34], [a, a, b, b]);

    // Six allowed cores on one node, two on the other: the processes are divided likewise.
    let uneven = large().read("0-5,8-9")?;
    assert_eq!(placed(Bind::Numa, 4, 1, &uneven), ["0-5", "0-5", "0-5", "8-9"]);
    Ok(())
}

#[test]
#[should_panic(expected = "process 2 of 2")]
fn a_process_outside_the_job_is_refused() {
    let topology = small().read("0-1").expect("a sound tree");
    place(Bind::Core, 2, 2, 1, &topology);
}

#[test]
fn ways_to_bind_have_names() {
    for bind in [Bind::None, Bind::Core, Bind::Numa] {
        assert_eq!(bind.to_string().parse(), Ok(bind));
    }
    let error = "socket".parse::<Bind>().expect_err("not a way to bind");
    assert_eq!(error.to_string(), "invalid binding \"socket\": expected none, core or numa");
    assert_eq!(Bind::default(), Bind::None);
}

#[test]
fn this_machine_is_consistent() -> Result<(), TopologyError> {
    let topology = Topology::of_this_machine()?;
    assert_eq!(topology.cpus_allowed, current_affinity()?.intersection(&topology.cpus_online));
    assert!(!topology.cpus_allowed.is_empty());
    let in_cores = topology.cores.iter().fold(CpuSet::new(), |all, core| all.union(core));
    assert_eq!(in_cores, topology.cpus_online);
    assert_eq!(topology.cores.iter().map(CpuSet::len).sum::<usize>(), topology.cpus_online.len());
    assert!(topology.numa_nodes.iter().any(|node| node.memory_bytes > 0));
    Ok(())
}

#[test]
fn a_thread_is_bound_where_it_is_told() -> Result<(), AffinityError> {
    let allowed = current_affinity()?;
    for cpu in &allowed {
        let one = CpuSet::from_iter([cpu]);
        // A new thread each time, because its binding ends with it.
        let bound = std::thread::scope(|scope| {
            scope.spawn(|| bind_current_thread(&one).and_then(|()| current_affinity())).join().expect("no panic")
        });
        assert_eq!(bound?, one);
    }
    assert_eq!(current_affinity()?, allowed);
    Ok(())
}

#[test]
fn an_impossible_binding_is_refused() {
    assert!(matches!(bind_current_thread(&CpuSet::new()), Err(AffinityError::Empty)));
    let error = bind_current_thread(&set("8190-8191")).expect_err("no such CPU");
    assert!(matches!(error, AffinityError::Refused { .. }), "{error}");
    assert!(error.to_string().contains("8190-8191"), "{error}");
}
