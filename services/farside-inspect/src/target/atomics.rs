//! The atomics of the [lock word](super::word). The model checker has its own in their place.

pub(super) use std::sync::atomic::{AtomicU64, Ordering, fence};
