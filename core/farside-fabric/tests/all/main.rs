//! The integration tests of `farside-fabric`: one program, so that the crate is linked once.
//!
//! `tests/loom` is a program of its own, because it needs the crate built with `--cfg loom`.

#![cfg(not(loom))]

mod bell;
mod conformance;
mod deep;
mod faulty;
mod killed_holder;
mod memory;
mod ofi;
mod ofi_queues;
mod only_messages;
mod over_ofi;
mod ring_model;
mod routes;
