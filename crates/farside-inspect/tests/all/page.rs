//! The page and its server, beside a running job.

pub(crate) mod again;
mod client;
mod crowd;
mod hostile;
mod pictures;
