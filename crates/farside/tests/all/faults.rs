//! What becomes of a job when something in it goes wrong, and when it is pushed to its limits.
//!
//! The processes of the jobs here run this test binary again, with arguments that lead to the one test. There they come to the
//! same job, and leave when it is over.

mod detection;
mod handlers;
mod heaps;
mod kill_points;
mod limits;
mod locks;
mod memory;
mod movement;
mod pipes;
mod shapes;
mod soak;
