//! A distributed histogram: `workloads/histo.rs`.
//!
//! ```sh
//! cargo run --release -p farside-containers --example histo -- -n UPDATES -T WORDS
//! ```
//!
//! Both numbers count for each worker; the defaults are 5,000,000 and 10,000.
//!
//! `workloads/common.rs` says which further flags there are: those of bale.

#[path = "workloads/common.rs"]
mod common;
#[path = "workloads/histo.rs"]
mod histo;

fn main() -> farside::Result<()> {
    common::main(&[("agp", histo::agp), ("exchange", histo::exchange)], [("-n", 5_000_000), ("-T", 10_000)])
}
