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

use crate::matrix::Bench;
use crate::metric::Metric;

/// All benches, in the order in which they run. The names are a contract.
pub(crate) const BENCHES: &[Bench] = &[
    Bench { name: "invoke-throughput", about: invoke_throughput::ABOUT, cases: invoke_throughput::cases },
    Bench { name: "invoke-latency", about: invoke_latency::ABOUT, cases: invoke_latency::cases },
    Bench { name: "oversubscribed", about: oversubscribed::ABOUT, cases: oversubscribed::cases },
    Bench { name: "mcts-scaling", about: mcts_scaling::ABOUT, cases: mcts_scaling::cases },
    Bench { name: "memory", about: memory::ABOUT, cases: memory::cases },
    Bench { name: "heap-policy", about: heap_policy::ABOUT, cases: heap_policy::cases },
    Bench { name: "sync", about: sync::ABOUT, cases: sync::cases },
    Bench { name: "transfer-throughput", about: transfer_throughput::ABOUT, cases: transfer_throughput::cases },
    Bench { name: "copy", about: copy::ABOUT, cases: copy::cases },
    Bench { name: "footprint", about: footprint::ABOUT, cases: footprint::cases },
    Bench { name: "pipe-scaling", about: pipe_scaling::ABOUT, cases: pipe_scaling::cases },
    Bench { name: "stencil", about: stencil::ABOUT, cases: stencil::cases },
    Bench { name: "pipe-latency", about: pipe_latency::ABOUT, cases: pipe_latency::cases },
    Bench { name: "components", about: components::ABOUT, cases: components::cases },
    Bench { name: "attentiveness", about: attentiveness::ABOUT, cases: attentiveness::cases },
    Bench { name: "irregular", about: irregular::ABOUT, cases: irregular::cases },
    Bench { name: "queue", about: queue::ABOUT, cases: queue::cases },
    Bench { name: "hash-map", about: hash_map::ABOUT, cases: hash_map::cases },
    Bench { name: "rpc-latency", about: rpc::LATENCY, cases: rpc::latency_cases },
    Bench { name: "rpc-rate", about: rpc::RATE, cases: rpc::rate_cases },
    Bench { name: "bulk", about: rpc::BULK, cases: rpc::bulk_cases },
    Bench { name: "rpc-scaling", about: rpc::SCALING, cases: rpc::scaling_cases },
    Bench { name: "kv", about: kv::ABOUT, cases: kv::cases },
    Bench { name: "expose", about: expose::ABOUT, cases: expose::cases },
    Bench { name: "multi-job", about: multi_job::ABOUT, cases: multi_job::cases },
];

/// Returns a metric and, after it, the figure that the authors of Seriema published, if any. "Each
/// reported number is an average of three experiments" (Section 5.2).
fn beside_seriema(metric: Metric, published: Option<f64>) -> Vec<Metric> {
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
mod tests {
    use super::*;

    #[test]
    fn sizes_are_spelled_with_the_largest_unit_that_is_whole() {
        let names = [8, 512, 1023, 1024, 4096, 65536, 1 << 20, 16 << 20].map(size_name);
        assert_eq!(names, ["8B", "512B", "1023B", "1KiB", "4KiB", "64KiB", "1MiB", "16MiB"]);
    }
}
