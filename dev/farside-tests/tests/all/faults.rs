//! Jobs in which something goes wrong, and jobs at their limits.
//!
//! The processes of these jobs run this test program again, with arguments that select the same
//! test. They reach the same job and exit when it is over.

mod cut_cable;
mod detection;
mod handlers;
mod heaps;
mod limits;
mod locks;
mod memory;
mod movement;
mod pipes;
mod shapes;
mod soak;
mod stop_points;
pub(crate) mod sweep;
mod traffic;
