//! Counting k-mers: `workloads/kmers.rs`.
//!
//! ```sh
//! cargo run --release -p farside-containers --example kmers -- READS K
//! ```
//!
//! The reads of each worker, and the length of a k-mer, at most 32; the defaults are 100,000 and
//! 31.

#[path = "workloads/common.rs"]
mod common;
#[path = "workloads/kmers.rs"]
mod kmers;

fn main() -> farside::Result<()> {
    common::main(&[("exchange", kmers::exchange)], [100_000, 31])
}
