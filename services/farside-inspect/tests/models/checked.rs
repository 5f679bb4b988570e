//! The lock word with the checker's atomics.

mod atomics {
    pub(super) use loom::sync::atomic::{AtomicU64, Ordering, fence};
}

#[path = "../../src/target/word.rs"]
pub(crate) mod word;
