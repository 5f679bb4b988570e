//! The benches.

pub(crate) mod copy;
pub(crate) mod footprint;
mod heap_policy;
pub(crate) mod invoke_latency;
pub(crate) mod invoke_throughput;
pub(crate) mod mcts_scaling;
mod memory;
pub(crate) mod multi_job;
pub(crate) mod oversubscribed;
pub(crate) mod pipe_latency;
pub(crate) mod pipe_scaling;
pub(crate) mod stencil;
mod sync;
pub(crate) mod transfer_throughput;

use crate::matrix::Bench;

pub(crate) const BENCHES: &[Bench] = &[
    Bench {
        name: "invoke-throughput",
        about: "one-way calls between two processes, whose every argument byte is read (Seriema, Table 2)",
        cases: invoke_throughput::cases,
    },
    Bench { name: "invoke-latency", about: "round trips of calls between two processes", cases: invoke_latency::cases },
    Bench {
        name: "oversubscribed",
        about: "round trips and barriers of more processes than CPUs; what waiting, starting and ending cost",
        cases: oversubscribed::cases,
    },
    Bench {
        name: "mcts-scaling",
        about: "tree search for Hex on 11 x 11 cells, 16 simulations a leaf (Seriema, Figure 3)",
        cases: mcts_scaling::cases,
    },
    Bench {
        name: "memory",
        about: "registered buffers, by size and policy; memory of another process",
        cases: memory::cases,
    },
    Bench {
        name: "heap-policy",
        about: "remote heaps: latency and fragmentation by policy, on a recorded and a random trace (rmalloc, slides 17 to 22)",
        cases: heap_policy::cases,
    },
    Bench {
        name: "sync",
        about: "several on one thing: combining, delegation, and locks of the job",
        cases: sync::cases,
    },
    Bench {
        name: "transfer-throughput",
        about: "puts between two processes, signalled by hand and by a transmitter (Seriema, Figure 2)",
        cases: transfer_throughput::cases,
    },
    Bench { name: copy::NAME, about: copy::ABOUT, cases: copy::cases },
    Bench { name: footprint::NAME, about: footprint::ABOUT, cases: footprint::cases },
    Bench { name: pipe_scaling::NAME, about: pipe_scaling::ABOUT, cases: pipe_scaling::cases },
    Bench { name: stencil::NAME, about: stencil::ABOUT, cases: stencil::cases },
    Bench { name: pipe_latency::NAME, about: pipe_latency::ABOUT, cases: pipe_latency::cases },
    Bench { name: multi_job::NAME, about: multi_job::ABOUT, cases: multi_job::cases },
];

/// A size in bytes as cases spell it: `8B`, `4KiB`, `1MiB`.
fn size_name(bytes: usize) -> String {
    match bytes {
        _ if bytes.is_multiple_of(1 << 20) => format!("{}MiB", bytes >> 20),
        _ if bytes.is_multiple_of(1 << 10) => format!("{}KiB", bytes >> 10),
        _ => format!("{bytes}B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_spelled_with_the_largest_unit_that_is_whole() {
        let names = [8, 512, 1023, 1024, 4096, 65536, 1 << 20, 16 << 20].map(size_name);
        assert_eq!(names, ["8B", "512B", "1023B", "1KiB", "4KiB", "64KiB", "1MiB", "16MiB"]);
    }
}
