//! Searches on jobs of several processes.

mod agreement;
mod loss;
#[path = "../hex/oracle.rs"]
#[allow(dead_code, reason = "most of it is for the tests of the game")]
mod oracle;
mod positions;
mod sessions;
mod shapes;
mod solving;
