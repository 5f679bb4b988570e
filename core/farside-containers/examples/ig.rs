//! Index gather: `workloads/ig.rs`.
//!
//! ```sh
//! cargo run --release -p farside-containers --example ig -- -n READS -T WORDS
//! ```
//!
//! Both numbers count for each worker; the defaults are 5,000,000 and 10,000.
//!
//! `workloads/common.rs` says which further flags there are: those of bale.

#[path = "workloads/common.rs"]
mod common;
#[path = "workloads/ig.rs"]
mod ig;

fn main() -> farside::Result<()> {
    common::main(&[("agp", ig::agp), ("exchange", ig::exchange)], [("-n", 5_000_000), ("-T", 10_000)])
}
