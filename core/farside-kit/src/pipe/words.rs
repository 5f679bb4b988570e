//! The atomics of [`protocol`](super::protocol): the real ones here. The model check
//! (`tests/models/pipe.rs`) compiles that file with those of the model checker.

pub(crate) use std::sync::atomic::{AtomicU64, Ordering};
