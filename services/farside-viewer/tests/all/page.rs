//! The page and its server, with a running job.

pub(crate) mod again;
mod client;
mod crowd;
mod hostile;
mod other_sites;
mod pictures;
mod soak;
