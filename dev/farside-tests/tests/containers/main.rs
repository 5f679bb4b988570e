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

/// Runs a body by processes over the transport that `FARSIDE_FABRIC` names, and in simulations with
/// few and with many workers, by `simulated` if the test has no function of its own for that.
macro_rules! everywhere {
    ($name:ident, $body:path) => {
        crate::everywhere!($name, $body, crate::simulated);
    };
    ($name:ident, $body:path, $simulated:path) => {
        mod $name {
            #[farside::test(processes = 2, threads = 2, timeout_s = 120)]
            fn by_processes(me: &farside::Worker) -> farside::Result<()> {
                $body(me)
            }

            #[test]
            fn by_eight_processes() {
                crate::by_eight($body, concat!(module_path!(), "::by_eight_processes"));
            }

            #[test]
            fn simulated() {
                $simulated($body);
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

/// Simulates a body with different numbers of workers, up to this one. The checker of accesses
/// looks on once, and finds nothing.
fn simulated_up_to(processes: u32, threads: u32, body: fn(&Worker) -> Result<()>) {
    for (processes, threads, seed) in [(1, 1, 1), (2, 1, 2), (3, 2, 3), (5, 1, 4), (processes, threads, 5)] {
        let simulated = Simulation::new(processes, threads, seed).check_accesses(seed == 3).run(body);
        let verdict = simulated.and_then(|simulated| simulated.verdict);
        verdict.unwrap_or_else(|error| panic!("{processes} x {threads}: {error}"));
    }
}

/// Runs a body by eight processes over libfabric, if the machine has it.
fn by_eight(body: fn(&Worker) -> Result<()>, test: &str) {
    by_eight_over(if farside_testbed::is_left_out("fabric") { "shm" } else { "ofi:tcp" }, body, test);
}

/// Runs a body by eight processes over a fabric.
fn by_eight_over(fabric: &str, body: fn(&Worker) -> Result<()>, test: &str) {
    let name = test.split_once("::").expect("a path in this crate").1;
    let job = farside::job().processes(8).force_fabric(fabric.parse().expect("a transport"));
    let job = job.entry([name, "--exact", "--nocapture", "--test-threads=1"]).quiet_stdout();
    let verdict = job.time_limit(std::time::Duration::from_secs(120)).run(body);
    if std::env::var_os("FARSIDE_LAUNCHER").is_some() {
        std::process::exit(verdict.is_err().into());
    }
    verdict.unwrap();
}
