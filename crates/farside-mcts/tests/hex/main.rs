//! Hex against brute force.

mod oracle;
mod positions;
mod rules;
mod solving;
