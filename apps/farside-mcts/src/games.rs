//! The games of this crate.

pub mod four;
pub mod hex;
