//! Breadth-first search: `workloads/bfs.rs`.
//!
//! ```sh
//! cargo run --release -p farside-containers --example bfs -- -n VERTICES -e EDGES
//! ```
//!
//! The vertices of each worker, rounded down to a power of two in all, and the edges for each
//! vertex; the defaults are 131,072 (scale 18 with two workers) and 16.
//!
//! `workloads/common.rs` says which further flags there are: those of bale.

#[path = "workloads/bfs.rs"]
mod bfs;
#[path = "workloads/common.rs"]
mod common;
#[path = "workloads/matrix.rs"]
mod matrix;

fn main() -> farside::Result<()> {
    common::main(&[("agp", bfs::agp), ("exchange", bfs::exchange)], [("-n", 1 << 17), ("-e", 16)])
}
