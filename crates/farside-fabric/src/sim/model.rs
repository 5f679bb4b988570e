//! Durations on the simulated network.

use std::time::Duration;

/// The speed of a network, by the LogGP model (Alexandrov, Ionescu, Schauser and Scheiman, "LogGP:
/// incorporating long messages into the LogP model", 1995).
///
/// A message of `k` bytes leaves when its thread has spent [`overhead_ns`](Self::overhead_ns) on it
/// and the port of its process is free. It occupies the port for [`gap_ns`](Self::gap_ns) or `k`
/// times the gap per byte, whichever is longer. It arrives `k` gaps per byte and
/// [`latency_ns`](Self::latency_ns) after it left. The thread that receives it spends the overhead
/// once more. Puts, gets and atomics travel there and back and cost their target no overhead.
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
}

impl LogGp {
    /// No operation takes any time but what the seed adds.
    pub const IDEAL: Self = Self { latency_ns: 0, overhead_ns: 0, gap_ns: 0, gap_per_byte_ps: 0 };

    /// FDR InfiniBand, as in Seriema's measurements (ConnectX-3 Pro on 8 lanes of PCI Express 3.0).
    ///
    /// - latency 1 µs: "on the order of 1 µs" (Section 1);
    /// - gap 208 ns: one-sided calls of 8 bytes at 38.39 MB/s are 4.80 million a second (Table 2,
    ///   write);
    /// - gap per byte 183 ps: 4 KiB transfers at 5464 MB/s (Section 5.2);
    /// - overhead 104 ns: not published; half the gap, so that neither side's CPU is the limit.
    pub const FDR: Self = Self { latency_ns: 1000, overhead_ns: 104, gap_ns: 208, gap_per_byte_ps: 183 };

    /// Cray Aries, as in the measurements of Brock et al. (Cori Phase I, 64 nodes of 32 processes).
    ///
    /// - latency 1.45 µs: half of what a put of 8 bytes takes, 3.0 µs (Table I, W), without the
    ///   overhead;
    /// - overhead and gap 100 ns: not published; small beside the latency, as their one-sided
    ///   operations show no such part;
    /// - gap per byte 100 ps: 10 GB/s one way (rmalloc and rpipe, slide 37).
    ///
    /// Gets and atomics also take 3.0 µs in this model; the measured values are 3.7 to 3.9 µs.
    pub const ARIES: Self = Self { latency_ns: 1450, overhead_ns: 100, gap_ns: 100, gap_per_byte_ps: 100 };

    /// 100 gigabit Ethernet with RDMA. No seed publishes measurements of it.
    ///
    /// - gap per byte 80 ps: 100 Gb/s, by its name;
    /// - latency 2 µs, overhead 100 ns and gap 100 ns: assumed, a switched network somewhat slower
    ///   than [`FDR`](Self::FDR).
    pub const ETHERNET_100G: Self = Self { latency_ns: 2000, overhead_ns: 100, gap_ns: 100, gap_per_byte_ps: 80 };

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

    /// The time for which such a message occupies the port.
    pub(super) fn port_ns(&self, bytes: usize) -> u64 {
        self.gap_ns.max(self.wire_ns(bytes))
    }
}

/// Converts a time to whole nanoseconds.
pub(super) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
