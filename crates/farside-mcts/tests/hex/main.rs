//! Hex against brute force.

mod htp;
mod oracle;
mod positions;
mod rules;
mod solving;
