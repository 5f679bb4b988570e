//! Counting triangles: `workloads/triangles.rs`.
//!
//! ```sh
//! cargo run --release -p farside-containers --example triangles -- -n VERTICES -z NEIGHBORS
//! ```
//!
//! The vertices of each worker, and the neighbors with smaller numbers of a vertex; the defaults
//! are 100,000 and 10.
//!
//! `workloads/common.rs` says which further flags there are: those of bale.

#[path = "workloads/common.rs"]
mod common;
#[path = "workloads/matrix.rs"]
mod matrix;
#[path = "workloads/triangles.rs"]
mod triangles;

fn main() -> farside::Result<()> {
    common::main(&[("agp", triangles::agp), ("exchange", triangles::exchange)], [("-n", 100_000), ("-z", 10)])
}
