//! Bodies of workers that run on every fabric.

/// Makes two tests of each function, which takes a worker and returns a `Result`. One runs as
/// processes, over the fabric that `FARSIDE_FABRIC` names. The other runs in the simulator, with a
/// number of seeds that the depth of the run scales.
macro_rules! everywhere {
    (
        as_processes(processes = $processes:tt, threads = $threads:tt),
        simulated(processes = $simulated:expr, threads = $simulated_threads:expr, seeds = $seeds:expr);
        $($body:ident)*
    ) => {
        mod as_processes {
            use super::*;
            $(
                #[farside::test(processes = $processes, threads = $threads)]
                fn $body(me: &Worker) -> Result<()> {
                    super::$body(me)
                }
            )*
        }

        mod simulated {
            $(
                #[test]
                fn $body() {
                    for seed in 0..farside_testbed::scaled($seeds) {
                        if let Err(error) = farside::simulate($simulated, $simulated_threads, seed, super::$body) {
                            panic!("seed {seed}: {error}");
                        }
                    }
                }
            )*
        }
    };
}
