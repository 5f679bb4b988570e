//! Bodies of workers that are run everywhere.

/// Makes two tests of each of these functions, which take a worker and return a `Result`: one with real processes, over whatever
/// `FARSIDE_FABRIC` says, and one in the simulator, once for each of the seeds.
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
                    for seed in $seeds {
                        if let Err(error) = farside::simulate($simulated, $simulated_threads, seed, super::$body) {
                            panic!("seed {seed}: {error}");
                        }
                    }
                }
            )*
        }
    };
}
