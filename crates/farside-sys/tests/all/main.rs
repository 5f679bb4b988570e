//! The integration tests of `farside-sys`: one program, so that the crate is linked once.
//!
//! `tests/environment.rs` is a program of its own: it needs a process with one thread, which a test harness has not.

mod image;
mod topology;
