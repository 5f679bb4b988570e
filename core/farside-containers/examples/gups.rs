//! Random updates of a table: `workloads/gups.rs`.
//!
//! ```sh
//! cargo run --release -p farside-containers --example gups -- -n WORDS -u UPDATES
//! ```
//!
//! The words of each worker, rounded down to a power of two, and the updates for each word; the
//! defaults are 4,194,304 and 4.
//!
//! `workloads/common.rs` says which further flags there are: those of bale.

#[path = "workloads/common.rs"]
mod common;
#[path = "workloads/gups.rs"]
mod gups;

fn main() -> farside::Result<()> {
    common::main(&[("agp", gups::agp), ("exchange", gups::exchange)], [("-n", 4 << 20), ("-u", 4)])
}
