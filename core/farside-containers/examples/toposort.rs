//! Sorting a matrix into triangular form: `workloads/toposort.rs`.
//!
//! ```sh
//! cargo run --release -p farside-containers --example toposort -- -n ROWS -z ONES
//! ```
//!
//! The rows of each worker, and the ones in a row; the defaults are 500,000 and 10.
//!
//! `workloads/common.rs` says which further flags there are: those of bale.

#[path = "workloads/common.rs"]
mod common;
#[path = "workloads/matrix.rs"]
mod matrix;
#[path = "workloads/toposort.rs"]
mod toposort;

fn main() -> farside::Result<()> {
    common::main(&[("agp", toposort::agp), ("exchange", toposort::exchange)], [("-n", 500_000), ("-z", 10)])
}
