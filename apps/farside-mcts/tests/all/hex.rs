//! Hex against brute force.

mod htp;
pub(crate) mod oracle;
mod positions;
mod quality;
mod rules;
mod solving;
