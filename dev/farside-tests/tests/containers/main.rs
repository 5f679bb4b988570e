//! The integration tests of `farside-containers`: one program, so that the crate is linked once.

mod another_job;
mod array_batch;
mod come_and_go;
mod cost;
mod cut_cable;
mod dist;
mod examples;
mod exchange;
mod keep;
mod linear;
mod losses;
mod map;
mod query;
mod queue;
mod remote;

use farside::{Result, Simulation, Worker};
use farside_testbed::scaled;

/// Runs a body by processes over the transport that `FARSIDE_FABRIC` names, by eight of them, and
/// in simulations with few and with many workers, by `simulated` if the test has no function of its
/// own for that.
macro_rules! everywhere {
    ($name:ident, $body:path) => {
        crate::everywhere!($name, $body, crate::simulated);
    };
    ($name:ident, $body:path, $simulated:path) => {
        mod $name {
            const BODY: fn(&farside::Worker) -> farside::Result<()> = $body;

            #[farside::test(processes = 2, threads = 2, timeout_s = 600)]
            fn by_processes(me: &farside::Worker) -> farside::Result<()> {
                BODY(me)
            }

            #[test]
            fn simulated() {
                $simulated(BODY);
            }

            mod deep {
                #[test]
                fn by_eight_processes() {
                    crate::by_eight(super::BODY, concat!(module_path!(), "::by_eight_processes"));
                }
            }
        }
    };
}
pub(crate) use everywhere;

/// Simulates a body with different numbers of workers.
fn simulated(body: fn(&Worker) -> Result<()>) {
    simulated_up_to(17, 1, body);
}

/// The same up to the number from which on items go by two hops: a grid with a short last row.
fn simulated_in_a_grid(body: fn(&Worker) -> Result<()>) {
    simulated_up_to(35, 2, body);
}

/// Simulates a body with different numbers of workers, up to this one: some of them in the fast
/// tier, all in the deep one. The checker of accesses looks on once, and finds nothing.
fn simulated_up_to(processes: u32, threads: u32, body: fn(&Worker) -> Result<()>) {
    let shapes = [(3, 2, 3), (1, 1, 1), (processes, threads, 5), (5, 1, 4), (2, 1, 2)];
    for (processes, threads, seed) in shapes.into_iter().take(scaled(SHAPES) as usize) {
        let simulated = Simulation::new(processes, threads, seed).check_accesses(seed == 3).run(body);
        let verdict = simulated.and_then(|simulated| simulated.verdict);
        verdict.unwrap_or_else(|error| panic!("{processes} x {threads}: {error}"));
    }
}

/// The number of shapes that are simulated at depth 1.
const SHAPES: u64 = 2;

/// Runs a body by eight processes over libfabric, if the machine has it.
fn by_eight(body: fn(&Worker) -> Result<()>, test: &str) {
    by_eight_over(if farside_testbed::is_left_out("fabric") { "shm" } else { "ofi:tcp" }, body, test);
}

/// Runs a body by eight processes over a fabric. Each of them runs this test, whose path in this
/// program begins with the name of the crate.
fn by_eight_over(fabric: &str, body: fn(&Worker) -> Result<()>, test: &str) {
    let name = test.split_once("::").expect("a path in this crate").1;
    let job = farside::job().processes(8).force_fabric(fabric.parse().expect("a transport"));
    let job = job.entry([name, "--exact", "--nocapture", "--test-threads=1"]).quiet_stdout();
    let verdict = job.time_limit(farside_testbed::limit()).run(body);
    if std::env::var_os("FARSIDE_LAUNCHER").is_some() {
        std::process::exit(verdict.is_err().into());
    }
    verdict.unwrap();
}
