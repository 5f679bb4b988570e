//! What becomes of a job when something in it goes wrong.
//!
//! The processes of the jobs here run this test binary again, with arguments that lead to the one test. There they come to the
//! same job, and leave when it is over.

mod detection;
mod kill_points;
mod support;
