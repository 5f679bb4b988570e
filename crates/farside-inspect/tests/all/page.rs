//! The page and its server, beside a running job.

mod client;
mod crowd;
mod hostile;
mod pictures;
