//! Marks with fences that do nothing.

mod atomics {
    pub(super) use loom::sync::atomic::{AtomicU64, Ordering};

    pub(super) fn fence(_: Ordering) {}
}

#[path = "../../src/path/shm/mark.rs"]
pub(crate) mod mark;
