//! A random permutation: `workloads/randperm.rs`.
//!
//! ```sh
//! cargo run --release -p farside-containers --example randperm -- -n DARTS -f SLOTS
//! ```
//!
//! The darts of each worker, and the slots for each dart; the defaults are 1,000,000 and 2.
//!
//! `workloads/common.rs` says which further flags there are: those of bale.

#[path = "workloads/common.rs"]
mod common;
#[path = "workloads/randperm.rs"]
mod randperm;

fn main() -> farside::Result<()> {
    common::main(&[("agp", randperm::agp), ("exchange", randperm::exchange)], [("-n", 1_000_000), ("-f", 2)])
}
