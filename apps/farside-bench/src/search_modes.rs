//! Searches that the library does not offer, to compare with it.

pub(crate) mod seriema;
