//! Counting k-mers: `workloads/kmers.rs`.
//!
//! ```sh
//! cargo run --release -p farside-containers --example kmers -- -n READS -k K
//! ```
//!
//! The reads of each worker, and the length of a k-mer, at most 32; the defaults are 100,000 and
//! 31.
//!
//! `workloads/common.rs` says which further flags there are: those of bale.

#[path = "workloads/common.rs"]
mod common;
#[path = "workloads/kmers.rs"]
mod kmers;

fn main() -> farside::Result<()> {
    common::main(&[("agp", kmers::agp), ("exchange", kmers::exchange)], [("-n", 100_000), ("-k", 31)])
}
