//! Marks with the checker's atomics.

mod atomics {
    pub(super) use loom::sync::atomic::{AtomicU64, Ordering, fence};
}

#[path = "../../src/path/shm/mark.rs"]
pub(crate) mod mark;
