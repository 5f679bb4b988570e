//! Games that come with the crate.

pub mod four;
pub mod hex;
