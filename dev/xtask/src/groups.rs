//! The groups of the deep tier: what each proves, and how it is run.

use crate::beds::{self, Bed, BedOptions};
use crate::programs::Programs;
use crate::runner::{self, Settings, Summary, Test};
use crate::steps::{cargo, run};

/// A group of deep tests.
pub(crate) struct Group {
    /// The name on the command line.
    pub(crate) name: &'static str,
    /// The claim that it proves, in a line.
    pub(crate) proves: &'static str,
    /// The beds that it needs.
    pub(crate) beds: &'static [Bed],
    /// The tests and commands that it runs.
    pub(crate) parts: &'static [Part],
}

/// A part of a group.
pub(crate) enum Part {
    /// Tests of the fast tier again, with more seeds, rounds and orders.
    Deeper(fn(&Test) -> bool),
    /// Deep tests, side by side.
    Deep(fn(&Test) -> bool),
    /// Deep tests, one after the other: they need a free processor or much memory.
    Alone(fn(&Test) -> bool),
    /// Tests of both tiers again, with a variable.
    Again(&'static [(&'static str, &'static str)], fn(&Test) -> bool),
    /// Something else.
    Other(fn(&Programs, &[Bed]) -> Result<(), String>),
}

/// How much more the deep tier does than the fast one.
const DEPTH: &str = "10";

/// All groups.
pub(crate) const GROUPS: &[Group] = &[
    Group {
        name: "core",
        proves: "calls, memory, heaps, pipes, locks, launch and codec: more seeds, all kill points, whole programs",
        beds: &[Bed::Fabric],
        parts: &[Part::Deeper(is_core), Part::Deep(|test| is_core(test) && is_ordinary(test))],
    },
    Group {
        name: "containers",
        proves: "maps, queues, exchanges and snapshots: all orders, all deaths, eight processes",
        beds: &[Bed::Fabric],
        parts: &[Part::Deeper(is_containers), Part::Deep(|test| is_containers(test) && is_ordinary(test))],
    },
    Group {
        name: "services",
        proves: "remote procedures, the store and the inspector: every kill, hostile peers, every way to wait",
        beds: &[Bed::Fabric, Bed::Python],
        parts: &[Part::Deeper(is_service), Part::Deep(|test| is_service(test) && is_ordinary(test))],
    },
    Group {
        name: "apps",
        proves: "the search, the command and the benches, with their peers",
        beds: &[Bed::Fabric, Bed::Mpi, Bed::Peers, Bed::Python],
        parts: &[Part::Deeper(is_app), Part::Deep(|test| is_app(test) && is_ordinary(test))],
    },
    Group {
        name: "timing",
        proves: "what needs a real clock or a free processor; run it on a quiet machine",
        beds: &[Bed::Fabric],
        parts: &[Part::Alone(|test| test.is_timing() && !needs_surroundings(test))],
    },
    Group {
        name: "large",
        proves: "nothing is left after thousands of clients; transfers and jobs of the largest sizes",
        beds: &[],
        parts: &[Part::Alone(|test| test.is_deep() && is_large(test))],
    },
    Group {
        name: "libfabric",
        proves: "calls and memory between processes that share none; jobs on two machines",
        beds: &[Bed::Fabric],
        parts: &[
            Part::Again(&[("FARSIDE_FABRIC", "ofi:tcp")], is_over_libfabric),
            Part::Again(&[("FARSIDE_MACHINES", "2"), ("FARSIDE_FABRIC", "auto:tcp")], is_on_two_machines),
        ],
    },
    Group {
        name: "hosts",
        proves: "jobs, readers and stores between two hosts whose cable is cut",
        beds: &[Bed::Fabric, Bed::Netns],
        parts: &[Part::Deep(|test| test.is_deep() && is_between_hosts(test))],
    },
    Group {
        name: "browser",
        proves: "the page of the inspector in a browser",
        beds: &[Bed::Browser],
        parts: &[Part::Deep(|test| test.is_deep() && test.has_segment("browser"))],
    },
    Group {
        name: "beds",
        proves: "ranks in network namespaces, under mpirun and srun, on soft-RoCE, with another libfabric",
        beds: &[Bed::Fabric, Bed::Mpi, Bed::Slurm, Bed::Netns, Bed::RdmaVm, Bed::Wheel],
        parts: &[Part::Other(|_, without| beds::run_all(&BedOptions::without(without)))],
    },
    Group {
        name: "models",
        proves: "the protocols on shared words in all their interleavings",
        beds: &[],
        parts: &[Part::Other(|_, _| loom())],
    },
    Group {
        name: "builds",
        proves: "the optimised command searches; each crate is a package",
        beds: &[],
        parts: &[Part::Other(|_, _| builds())],
    },
];

/// Returns the group of this name.
pub(crate) fn find(name: &str) -> Result<&'static Group, String> {
    let found = GROUPS.iter().find(|group| group.name == name);
    found.ok_or_else(|| {
        let names: Vec<_> = GROUPS.iter().map(|group| group.name).collect();
        format!("unknown group {name:?}: name one of {}", names.join(", "))
    })
}

impl Group {
    /// Runs the group without these beds.
    pub(crate) fn run(&self, programs: &Programs, tests: &[Test], without: &[Bed]) -> Result<Summary, String> {
        let mut summary = Summary::default();
        let with: Vec<_> = Bed::all_but(without).iter().map(|bed| bed.name()).collect();
        let select = |is_one: &dyn Fn(&Test) -> bool| tests.iter().filter(|test| is_one(test)).cloned().collect();
        let with_beds = |settings: Settings| settings.with(farside_testbed::BEDS, with.join(","));
        let deep = |settings: Settings| with_beds(settings).with(farside_testbed::DEPTH, DEPTH);
        for part in self.parts {
            let ended = match part {
                Part::Deeper(is_one) => {
                    let again = select(&|test| is_one(test) && !test.is_deep());
                    runner::run(again, &deep(Settings::side_by_side()))?
                }
                Part::Deep(is_one) => runner::run(select(is_one), &deep(Settings::side_by_side()))?,
                Part::Alone(is_one) => runner::run(select(is_one), &deep(Settings::alone()))?,
                Part::Again(variables, is_one) => {
                    let mut settings = with_beds(Settings::side_by_side());
                    for (name, value) in *variables {
                        println!("xtask: {name}={value} for the next tests");
                        settings = settings.with(name, *value);
                    }
                    runner::run(select(is_one), &settings)?
                }
                Part::Other(other) => {
                    other(programs, without)?;
                    Summary { passed: 1, ..Summary::default() }
                }
            };
            if ended.passed + ended.failed.len() + ended.left_out.len() == 0 {
                return Err(format!("a part of the group {} selects no test", self.name));
            }
            summary.add(ended);
        }
        Ok(summary)
    }

    /// Returns whether a part of the group selects this deep test.
    pub(crate) fn has(&self, test: &Test) -> bool {
        self.parts.iter().any(|part| match part {
            Part::Deep(is_one) | Part::Alone(is_one) => is_one(test),
            Part::Deeper(_) | Part::Again(..) | Part::Other(_) => false,
        })
    }
}

/// Returns the names in the lists of this module that select no test.
pub(crate) fn stale_names(tests: &[Test]) -> Vec<String> {
    let modules = OVER_LIBFABRIC.iter().filter(|module| {
        let name = format!("{module}::");
        !tests.iter().any(|test| is_over_libfabric(test) && test.name.starts_with(&name))
    });
    let begins = ON_TWO_MACHINES
        .iter()
        .filter(|begin| !tests.iter().any(|test| is_on_two_machines(test) && without_tier(test).starts_with(**begin)));
    modules.chain(begins).map(|name| (*name).to_owned()).collect()
}

/// Returns whether this is a deep test that shares one machine with others.
fn is_ordinary(test: &Test) -> bool {
    test.is_deep() && !test.is_timing() && !is_large(test) && !needs_surroundings(test)
}

fn needs_surroundings(test: &Test) -> bool {
    is_between_hosts(test) || test.has_segment("browser")
}

fn is_containers(test: &Test) -> bool {
    test.program.target == "containers" || test.program.package == "farside-containers"
}

fn is_service(test: &Test) -> bool {
    test.program.folder.parent().is_some_and(|folder| folder.ends_with("services"))
        || (test.program.package == "farside-tests" && test.program.target == "rpc")
}

fn is_app(test: &Test) -> bool {
    test.program.folder.parent().is_some_and(|folder| folder.ends_with("apps"))
}

/// Returns whether a test belongs to no other part of the project.
fn is_core(test: &Test) -> bool {
    !is_containers(test) && !is_service(test) && !is_app(test)
}

/// Returns whether a test takes much memory or a minute by itself.
fn is_large(test: &Test) -> bool {
    ["soak", "huge", "thousands"].iter().any(|name| test.has_segment(name))
}

/// Returns whether a test creates two hosts, or cuts the cable between them.
fn is_between_hosts(test: &Test) -> bool {
    ["hosts", "between_hosts", "ofi_between_hosts", "cut_cable", "netns"].iter().any(|name| test.has_segment(name))
        || (test.program.package == "farside-testbed" && test.program.target == "netns")
}

/// Modules of the integration tests of `farside` whose processes use the transport that
/// `FARSIDE_FABRIC` names.
const OVER_LIBFABRIC: [&str; 16] = [
    "accesses",
    "atomics",
    "bad_input",
    "calls",
    "global",
    "heap",
    "memory",
    "movement",
    "movement_history",
    "notifications",
    "objects",
    "pipes",
    "registration",
    "sections",
    "signals",
    "sync",
];

/// Tests of calls, of memory and of their users between processes that share no memory.
fn is_over_libfabric(test: &Test) -> bool {
    let first = test.name.split("::").next().unwrap_or_default();
    test.program.package == "farside-tests"
        && test.program.target == "all"
        && OVER_LIBFABRIC.contains(&first)
        && !test.name.contains("simulated")
        && !test.is_timing()
}

/// Tests whose jobs have at least two processes on each of two machines, or lose one of three or
/// four processes.
const ON_TWO_MACHINES: [&str; 23] = [
    "atomics::everything_by_processes",
    "exchange::trees",
    "faults::locks",
    "faults::memory::memory_",
    "faults::sweep::killed::meetings_of_pipes",
    "faults::sweep::killed::messages_of_pipes",
    "faults::sweep::killed::peers_of_heaps",
    "faults::sweep::stopped_and_continued::messages_of_pipes",
    "faults::sweep::stopped_and_continued::peers_of_heaps",
    "global::everything_by_processes",
    "heap::as_processes",
    "job::shapes::four_processes",
    "job::shapes::two_processes_of_two_threads",
    "map::concurrent::counters",
    "map::whole::growth",
    "memory::as_processes",
    "movement::everything_by_processes",
    "notifications::everything_by_processes",
    "pipes::as_processes",
    "query::reads",
    "queue::each_once",
    "registration::as_processes",
    "sync",
];

/// Tests with processes that share memory with some peers, and reach the others over libfabric.
fn is_on_two_machines(test: &Test) -> bool {
    let name = without_tier(test);
    let is_program = ["farside-tests", "farside-mcts"].contains(&test.program.package.as_str())
        && ["all", "containers"].contains(&test.program.target.as_str());
    is_program
        && ON_TWO_MACHINES.iter().any(|begin| name.starts_with(begin))
        && !test.name.contains("simulated")
        && !test.is_timing()
}

/// Returns the name of a test as if its tier were not a part of it.
fn without_tier(test: &Test) -> String {
    test.name.replace("deep::", "")
}

/// Checks the protocols on shared words in all their interleavings.
fn loom() -> Result<(), String> {
    let flags = std::env::var("RUSTFLAGS").unwrap_or_default();
    // A target folder of its own: with one folder, each change of the flags would rebuild
    // everything.
    let mut command = cargo();
    command.env("RUSTFLAGS", format!("{flags} --cfg loom")).env("CARGO_TARGET_DIR", "target/loom");
    run(command.args(["test", "--package", "farside-fabric", "--package", "farside-transmit", "--test", "loom"]))
}

/// Checks what users build: the optimised command, and packages.
///
/// A call names its function by its place in the program, which must hold without debug assertions,
/// too.
fn builds() -> Result<(), String> {
    run(cargo().args(["run", "--release", "--", "hex", "-n", "2", "-t", "2", "--rollouts", "20000", "--json"]))?;
    run(&mut crate::tidy::packages::command())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::Program;

    fn test(folder: &str, target: &str, name: &str) -> Test {
        let package = folder.rsplit('/').next().unwrap().to_owned();
        let program = Program { package, target: target.into(), executable: "x".into(), folder: folder.into() };
        Test { program, name: name.into() }
    }

    #[test]
    fn each_deep_test_has_one_group() {
        for (test, group) in [
            (test("/x/core/farside-fabric", "all", "conformance::deep::verbs::order"), "core"),
            (test("/x/core/farside-fabric", "all", "ofi_between_hosts::deep::order"), "hosts"),
            (test("/x/dev/farside-tests", "all", "faults::deep::sweep::killed::heaps"), "core"),
            (test("/x/dev/farside-tests", "containers", "linear::schedules::deep::all"), "containers"),
            (test("/x/dev/farside-tests", "rpc", "cases::deep::tcp"), "services"),
            (test("/x/services/farside-rpc", "all", "soak::deep::clients"), "large"),
            (test("/x/services/farside-viewer", "all", "timing::idle"), "timing"),
            (test("/x/services/farside-kv", "all", "hosts::deep::cut"), "hosts"),
            (test("/x/apps/farside-cli", "farside", "deep::top"), "apps"),
        ] {
            let groups: Vec<_> = GROUPS.iter().filter(|group| group.has(&test)).map(|group| group.name).collect();
            assert_eq!(groups, [group], "{test:?}");
        }
    }

    #[test]
    fn an_unknown_group_is_refused_with_the_known_ones() {
        assert!(find("moon").err().unwrap().contains("core, containers"));
        assert!(find("models").is_ok());
    }
}
