//! The lock word with a fence that does nothing.

mod atomics {
    pub(super) use loom::sync::atomic::{AtomicU64, Ordering};

    pub(super) fn fence(_: Ordering) {}
}

#[expect(dead_code, reason = "this model has no claims and no waiting readers")]
#[path = "../../src/target/word.rs"]
pub(crate) mod word;
