//! Index gather: `workloads/ig.rs`.
//!
//! ```sh
//! cargo run --release -p farside-containers --example ig -- READS WORDS
//! ```
//!
//! Both numbers count for each worker; the defaults are 5,000,000 and 10,000.

#[path = "workloads/common.rs"]
mod common;
#[path = "workloads/ig.rs"]
mod ig;

fn main() -> farside::Result<()> {
    common::main(&[("agp", ig::agp), ("exchange", ig::exchange)], [5_000_000, 10_000])
}
