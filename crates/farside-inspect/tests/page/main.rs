//! The page and its server, beside a running job.

mod browser;
mod client;
mod crowd;
mod hostile;
mod pictures;
#[allow(dead_code, reason = "the other test program uses the rest")]
#[path = "../all/targets.rs"]
mod targets;
