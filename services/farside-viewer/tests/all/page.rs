//! The page and its server, beside a running job.

pub(crate) mod again;
mod client;
mod crowd;
mod hostile;
mod other_sites;
mod pictures;
mod soak;
