//! Breadth-first search: `workloads/bfs.rs`.
//!
//! ```sh
//! cargo run --release -p farside-containers --example bfs -- VERTICES EDGES
//! ```
//!
//! The vertices of each worker, rounded down to a power of two in all, and the edges for each
//! vertex; the defaults are 131,072 (scale 18 with two workers) and 16.

#[path = "workloads/bfs.rs"]
mod bfs;
#[path = "workloads/common.rs"]
mod common;
#[path = "workloads/matrix.rs"]
mod matrix;

fn main() -> farside::Result<()> {
    common::main(&[("exchange", bfs::exchange)], [1 << 17, 16])
}
