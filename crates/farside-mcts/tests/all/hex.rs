//! Hex against brute force.

mod htp;
pub(crate) mod oracle;
mod positions;
mod rules;
mod solving;
