//! A distributed histogram: `workloads/histo.rs`.
//!
//! ```sh
//! cargo run --release -p farside-containers --example histo -- UPDATES WORDS
//! ```
//!
//! Both numbers count for each worker; the defaults are 5,000,000 and 10,000.

#[path = "workloads/common.rs"]
mod common;
#[path = "workloads/histo.rs"]
mod histo;

fn main() -> farside::Result<()> {
    common::main(&[("agp", histo::agp), ("exchange", histo::exchange)], [5_000_000, 10_000])
}
