//! How long things take on the simulated network.

use std::time::Duration;

/// A network's speed, by the LogGP model (Alexandrov, Ionescu, Schauser and Scheiman, "LogGP: incorporating long messages into
/// the LogP model", 1995).
///
/// A message of `k` bytes leaves when the thread that sends it has spent [`overhead_ns`](Self::overhead_ns) on it and the port
/// of its process is free, keeps the port for [`gap_ns`](Self::gap_ns) or `k` times the gap per byte, whichever is longer, and
/// arrives `k` gaps per byte and [`latency_ns`](Self::latency_ns) after it left. The thread that receives it spends the overhead
/// once more. Put, get and atomics travel there and back and cost their target no overhead. Congestion inside the network, or
/// at the port of a receiver, is not modelled.
///
/// ```
/// use farside_fabric::sim::LogGp;
///
/// assert_eq!(LogGp::FDR.wire_ns(5464), 1000);
/// assert_eq!(LogGp::of_preset("fdr"), Some(LogGp::FDR));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogGp {
    /// From port to port.
    pub latency_ns: u64,
    /// What sending a message or posting an operation costs the thread that does it, and receiving the one that does that.
    pub overhead_ns: u64,
    /// Between two messages from one process.
    pub gap_ns: u64,
    /// For each byte of a message, in picoseconds.
    pub gap_per_byte_ps: u64,
}

impl LogGp {
    /// Nothing takes any time but what the seed adds.
    pub const IDEAL: Self = Self { latency_ns: 0, overhead_ns: 0, gap_ns: 0, gap_per_byte_ps: 0 };

    /// FDR InfiniBand, as Seriema's authors had it (ConnectX-3 Pro on 8 lanes of PCI Express 3.0).
    ///
    /// - latency 1 µs: "on the order of 1 µs" (Section 1);
    /// - gap 208 ns: one-sided calls of 8 bytes at 38.39 MB/s are 4.80 million a second (Table 2, write);
    /// - gap per byte 183 ps: 4 KiB transfers at 5464 MB/s (Section 5.2);
    /// - overhead 104 ns: not published; half the gap, so that neither side's CPU is the limit.
    pub const FDR: Self = Self { latency_ns: 1000, overhead_ns: 104, gap_ns: 208, gap_per_byte_ps: 183 };

    /// Cray Aries, as Brock et al. had it (Cori Phase I, 64 nodes of 32 processes).
    ///
    /// - latency 1.45 µs: half of what a put of 8 bytes takes, 3.0 µs (Table I, W), without the overhead;
    /// - overhead and gap 100 ns: not published; small beside the latency, as their one-sided operations show no such part;
    /// - gap per byte 100 ps: 10 GB/s one way (rmalloc and rpipe, slide 37).
    ///
    /// A get and atomics come out at 3.0 µs, too; measured were 3.7 to 3.9.
    pub const ARIES: Self = Self { latency_ns: 1450, overhead_ns: 100, gap_ns: 100, gap_per_byte_ps: 100 };

    /// 100 gigabit Ethernet with RDMA. No seed measured one.
    ///
    /// - gap per byte 80 ps: 100 Gb/s, by its name;
    /// - latency 2 µs, overhead 100 ns and gap 100 ns: assumed, a switched network somewhat slower than [`FDR`](Self::FDR).
    pub const ETHERNET_100G: Self = Self { latency_ns: 2000, overhead_ns: 100, gap_ns: 100, gap_per_byte_ps: 80 };

    /// The presets, by name.
    pub const PRESETS: &[(&str, Self)] = &[("fdr", Self::FDR), ("aries", Self::ARIES), ("100gbe", Self::ETHERNET_100G)];

    /// A preset by its name: `fdr`, `aries`, `100gbe`.
    pub fn of_preset(name: &str) -> Option<Self> {
        Self::PRESETS.iter().find(|(known, _)| *known == name).map(|(_, model)| *model)
    }

    /// How long a message of so many bytes takes from its first byte to its last.
    pub const fn wire_ns(&self, bytes: usize) -> u64 {
        (bytes as u64).saturating_mul(self.gap_per_byte_ps).div_ceil(1000)
    }

    /// How long the port is busy with one.
    pub(super) fn port_ns(&self, bytes: usize) -> u64 {
        self.gap_ns.max(self.wire_ns(bytes))
    }
}

/// A time in whole nanoseconds.
pub(super) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
