//! The farside command.
fn main() {}
