//! The benches, and the table of them.

mod attentiveness;
mod components;
mod containers;
mod copy;
mod expose;
mod footprint;
mod hash_map;
mod heap_policy;
mod invoke_latency;
mod invoke_throughput;
mod irregular;
mod kv;
mod mcts_scaling;
mod memory;
mod multi_job;
mod oversubscribed;
mod pipe_latency;
mod pipe_scaling;
mod queue;
mod rpc;
mod stencil;
mod sync;
mod transfer_throughput;

use crate::kit::*;
use crate::matrix::Bench;

/// All benches, in the order in which they run. The names are a contract.
pub(crate) const BENCHES: &[Bench] = &[
    Bench {
        name: "invoke-throughput",
        about: invoke_throughput::ABOUT,
        cases: |on| {
            by_fabric(
                on,
                invoke_throughput::cases,
                invoke_throughput::over_ofi::cases,
                invoke_throughput::simulated::cases,
            )
        },
    },
    Bench {
        name: "invoke-latency",
        about: invoke_latency::ABOUT,
        cases: |on| by_fabric(on, invoke_latency::cases, invoke_latency::over_ofi::cases, |_| vec![]),
    },
    Bench {
        name: "oversubscribed",
        about: oversubscribed::ABOUT,
        cases: |on| by_fabric(on, oversubscribed::cases, oversubscribed::over_ofi, |_| vec![]),
    },
    Bench {
        name: "mcts-scaling",
        about: mcts_scaling::ABOUT,
        cases: |on| by_fabric(on, mcts_scaling::cases, |_| vec![], mcts_scaling::simulated::cases),
    },
    Bench { name: "memory", about: memory::ABOUT, cases: |on| by_fabric(on, memory::cases, |_| vec![], |_| vec![]) },
    Bench {
        name: "heap-policy",
        about: heap_policy::ABOUT,
        cases: |on| by_fabric(on, heap_policy::cases, |_| vec![], |_| vec![]),
    },
    Bench { name: "sync", about: sync::ABOUT, cases: |on| by_fabric(on, sync::cases, |_| vec![], |_| vec![]) },
    Bench {
        name: "transfer-throughput",
        about: transfer_throughput::ABOUT,
        cases: |on| {
            by_fabric(
                on,
                transfer_throughput::cases,
                transfer_throughput::over_ofi,
                transfer_throughput::simulated::cases,
            )
        },
    },
    Bench {
        name: "copy",
        about: copy::ABOUT,
        cases: |on| by_fabric(on, copy::cases, copy::over_ofi::cases, |_| vec![]),
    },
    Bench { name: "footprint", about: footprint::ABOUT, cases: footprint::cases },
    Bench {
        name: "pipe-scaling",
        about: pipe_scaling::ABOUT,
        cases: |on| by_fabric(on, pipe_scaling::cases, |_| pipe_scaling::over_ofi(), pipe_scaling::simulated::cases),
    },
    Bench {
        name: "stencil",
        about: stencil::ABOUT,
        cases: |on| by_fabric(on, stencil::cases, |_| stencil::over_ofi(), stencil::simulated::cases),
    },
    Bench {
        name: "pipe-latency",
        about: pipe_latency::ABOUT,
        cases: |on| by_fabric(on, pipe_latency::cases, pipe_latency::over_ofi::cases, |_| vec![]),
    },
    Bench { name: "components", about: components::ABOUT, cases: components::cases },
    Bench { name: "attentiveness", about: attentiveness::ABOUT, cases: attentiveness::cases },
    Bench {
        name: "irregular",
        about: irregular::ABOUT,
        cases: |on| by_fabric(on, irregular::cases, |_| vec![], |_| vec![]),
    },
    Bench { name: "queue", about: queue::ABOUT, cases: queue::cases },
    Bench { name: "hash-map", about: hash_map::ABOUT, cases: hash_map::cases },
    Bench {
        name: "rpc-latency",
        about: rpc::LATENCY,
        cases: |on| by_fabric(on, rpc::latency_cases, |_| vec![], |_| vec![]),
    },
    Bench { name: "rpc-rate", about: rpc::RATE, cases: |on| by_fabric(on, rpc::rate_cases, |_| vec![], |_| vec![]) },
    Bench { name: "bulk", about: rpc::BULK, cases: |on| by_fabric(on, rpc::bulk_cases, |_| vec![], |_| vec![]) },
    Bench {
        name: "rpc-scaling",
        about: rpc::SCALING,
        cases: |on| by_fabric(on, rpc::scaling_cases, |_| vec![], |_| vec![]),
    },
    Bench { name: "kv", about: kv::ABOUT, cases: |on| by_fabric(on, kv::cases, |_| vec![], |_| vec![]) },
    Bench { name: "expose", about: expose::ABOUT, cases: |on| by_fabric(on, expose::cases, |_| vec![], |_| vec![]) },
    Bench {
        name: "multi-job",
        about: multi_job::ABOUT,
        cases: |on| by_fabric(on, multi_job::cases, multi_job::over_ofi, |_| vec![]),
    },
];

/// The cases of a bench on shared memory, over libfabric, or on a simulated network.
fn by_fabric(
    on: &Fabric,
    on_shm: fn() -> Vec<Case>,
    over_ofi: fn(&OfiFabric) -> Vec<Case>,
    simulated: fn(SimNetwork) -> Vec<Case>,
) -> Vec<Case> {
    match on {
        Fabric::Shm => on_shm(),
        Fabric::Ofi(fabric) => over_ofi(fabric),
        Fabric::Simulated(network) => simulated(*network),
    }
}

/// Returns a metric and, after it, the figure that the authors of Seriema published, if any. "Each
/// reported number is an average of three experiments" (Section 5.2).
fn against_seriema(metric: Metric, published: Option<f64>) -> Vec<Metric> {
    let published = published.map(|value| metric.published("seriema-published", value, 3));
    [metric].into_iter().chain(published).collect()
}

/// Formats a size in bytes as cases spell it: `8B`, `4KiB`, `1MiB`.
fn size_name(bytes: usize) -> String {
    match bytes {
        _ if bytes.is_multiple_of(1 << 20) => format!("{}MiB", bytes >> 20),
        _ if bytes.is_multiple_of(1 << 10) => format!("{}KiB", bytes >> 10),
        _ => format!("{bytes}B"),
    }
}

#[cfg(test)]
mod tests;
