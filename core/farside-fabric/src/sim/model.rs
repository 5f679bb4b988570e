//! Durations on the simulated network.

use std::time::Duration;

use super::parcel::Request;
use crate::transport::{AtomicChange, Operation};

/// The speed of a network, by the LogGP model (Alexandrov, Ionescu, Schauser and Scheiman, "LogGP:
/// incorporating long messages into the LogP model", 1995).
///
/// A message of `k` bytes leaves when its thread has spent [`overhead_ns`](Self::overhead_ns) on it
/// and the port of its process is free. It occupies the port for [`gap_ns`](Self::gap_ns) or `k`
/// times the gap per byte, whichever is longer. It arrives `k` gaps per byte and
/// [`latency_ns`](Self::latency_ns) after it left. The thread that receives it spends the overhead
/// once more. Puts, gets and atomics travel there and back and cost their target no overhead. Gets
/// and atomics also take time at the target, during which others go on. Atomics on one word take
/// turns: each begins at least [`word_ns`](Self::word_ns) after the one before it.
/// Congestion inside the network, or at the port of a receiver, is not modelled.
///
/// ```
/// use farside_fabric::sim::LogGp;
///
/// assert_eq!(LogGp::FDR.wire_ns(5464), 1000);
/// assert_eq!(LogGp::of_preset("fdr"), Some(LogGp::FDR));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogGp {
    /// Time from port to port.
    pub latency_ns: u64,
    /// Processor time of a thread for sending a message, posting an operation, or receiving a
    /// message.
    pub overhead_ns: u64,
    /// Minimum time between two messages from one process.
    pub gap_ns: u64,
    /// Time for each byte of a message, in picoseconds.
    pub gap_per_byte_ps: u64,
    /// Time that the target takes for a get.
    pub get_ns: u64,
    /// Time that the target takes for a compare-and-swap.
    pub compare_swap_ns: u64,
    /// Time that the target takes for any other atomic operation.
    pub fetch_ns: u64,
    /// Minimum time between two atomic operations on one word.
    pub word_ns: u64,
}

impl LogGp {
    /// No operation takes any time but what the seed adds.
    pub const IDEAL: Self = Self {
        latency_ns: 0,
        overhead_ns: 0,
        gap_ns: 0,
        gap_per_byte_ps: 0,
        get_ns: 0,
        compare_swap_ns: 0,
        fetch_ns: 0,
        word_ns: 0,
    };

    /// Shared memory inside a machine, as in this project's measurements of a peer on two cores
    /// (GASNet-EX 2025.8.0 and BCL over shared memory).
    ///
    /// - latency 30 ns: a fetch-add on a word that two processes change takes 60.7 ns, the time of
    ///   its cache line there and back;
    /// - 30 ns between two atomics on one word: in these 60.7 ns each of the two has its turn;
    /// - gap per byte 21 ps: puts of 64 to 512 KiB at 47 GB/s;
    /// - no overhead and no gap: a load or a store is posted in about a nanosecond.
    ///
    /// No preset of a network. [`SimOptions`](super::SimOptions) says which processes share memory.
    pub const SHARED_MEMORY: Self = Self { latency_ns: 30, gap_per_byte_ps: 21, word_ns: 30, ..Self::IDEAL };

    /// FDR InfiniBand, as in Seriema's measurements (ConnectX-3 Pro on 8 lanes of PCI Express 3.0).
    ///
    /// - latency 1 µs: "on the order of 1 µs" (Section 1);
    /// - gap 208 ns: one-sided calls of 8 bytes at 38.39 MB/s are 4.80 million a second (Table 2,
    ///   write);
    /// - gap per byte 183 ps: 4 KiB transfers at 5464 MB/s (Section 5.2);
    /// - overhead 104 ns: not published; half the gap, so that neither side's CPU is the limit.
    pub const FDR: Self = Self { latency_ns: 1000, overhead_ns: 104, gap_ns: 208, gap_per_byte_ps: 183, ..Self::IDEAL };

    /// Cray Aries, as in the measurements of Brock et al. (Cori Phase I, 64 nodes of 32 processes).
    /// An operation of 8 bytes takes exactly what their Table I says: put 3.0 µs, get 3.7,
    /// compare-and-swap 3.8, fetch-and-op 3.9.
    ///
    /// - latency 1.45 µs and overhead 99 ns: not published apart. Together with 1 ns for 8 bytes
    ///   they make a put. The overhead is small, as the one-sided operations show no such part;
    /// - gap 100 ns: not published; that of the overhead;
    /// - gap per byte 100 ps: 10 GB/s one way (rmalloc and rpipe, slide 37);
    /// - get, compare-and-swap and fetch: what Table I has beyond a put;
    /// - 5.6 µs between two atomics on one word: not published. A fetch-add on a single variable of
    ///   each process costs much more than on random words (Figure 3). With a put, it costs as much
    ///   as a call whose target looks every 2 µs (Figure 6). A call costs a little less than the
    ///   atomic find, 11.5 µs (Figure 5); here 10.5 µs. So that fetch-add takes 10.5 + 1.0 - 3.0 =
    ///   8.5 µs, as it does with 5.6 µs where 2048 processes choose their targets at random.
    pub const ARIES: Self = Self {
        latency_ns: 1450,
        overhead_ns: 99,
        gap_ns: 100,
        gap_per_byte_ps: 100,
        get_ns: 700,
        compare_swap_ns: 799,
        fetch_ns: 899,
        word_ns: 5600,
    };

    /// 100 gigabit Ethernet with RDMA. No paper publishes measurements of it.
    ///
    /// - gap per byte 80 ps: 100 Gb/s, by its name;
    /// - latency 2 µs, overhead 100 ns and gap 100 ns: assumed, a switched network somewhat slower
    ///   than [`FDR`](Self::FDR).
    pub const ETHERNET_100G: Self =
        Self { latency_ns: 2000, overhead_ns: 100, gap_ns: 100, gap_per_byte_ps: 80, ..Self::IDEAL };

    /// The presets, by name.
    pub const PRESETS: &[(&str, Self)] = &[("fdr", Self::FDR), ("aries", Self::ARIES), ("100gbe", Self::ETHERNET_100G)];

    /// A preset by its name: `fdr`, `aries`, `100gbe`.
    pub fn of_preset(name: &str) -> Option<Self> {
        Self::PRESETS.iter().find(|(known, _)| *known == name).map(|(_, model)| *model)
    }

    /// The time that a message of `bytes` bytes takes from its first byte to its last.
    pub const fn wire_ns(&self, bytes: usize) -> u64 {
        (bytes as u64).saturating_mul(self.gap_per_byte_ps).div_ceil(1000)
    }

    /// The time that the target takes for a request.
    pub(super) fn target_ns(&self, request: &Request) -> u64 {
        use AtomicChange::CompareSwap;
        use Operation::{Atomic32, Atomic64};
        match request {
            Request::Attach | Request::Put { .. } => 0,
            Request::Get { .. } => self.get_ns,
            Request::Atomic { operation, .. } => match operation {
                Atomic64 { change: CompareSwap { .. }, .. } | Atomic32 { change: CompareSwap { .. }, .. } => {
                    self.compare_swap_ns
                }
                _ => self.fetch_ns,
            },
        }
    }

    /// The time for which such a message occupies the port.
    pub(super) fn port_ns(&self, bytes: usize) -> u64 {
        self.gap_ns.max(self.wire_ns(bytes))
    }
}

/// Converts a time to whole nanoseconds.
pub(super) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
