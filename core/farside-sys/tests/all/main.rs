//! The integration tests of `farside-sys`: one program, so that the crate is linked once.
//!
//! `tests/environment.rs` is a separate program: it needs a process with a single thread, and a
//! test harness starts several.

mod image;
mod topology;
