//! Games that come with the crate.

pub mod hex;
