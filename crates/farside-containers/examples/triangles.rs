//! Counting triangles: `workloads/triangles.rs`.
//!
//! ```sh
//! cargo run --release -p farside-containers --example triangles -- VERTICES NEIGHBORS
//! ```
//!
//! The vertices of each worker, and the neighbors with smaller numbers of a vertex; the defaults
//! are 100,000 and 10.

#[path = "workloads/common.rs"]
mod common;
#[path = "workloads/matrix.rs"]
mod matrix;
#[path = "workloads/triangles.rs"]
mod triangles;

fn main() -> farside::Result<()> {
    common::main(&[("agp", triangles::agp), ("exchange", triangles::exchange)], [100_000, 10])
}
