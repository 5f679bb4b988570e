//! What the protocol in [`protocol`](super::protocol) is made of: the real things here. Its model check (`tests/all/pipe_model.rs`) compiles
//! that file with those of the model checker.

pub(crate) use std::sync::atomic::{AtomicU64, Ordering};
