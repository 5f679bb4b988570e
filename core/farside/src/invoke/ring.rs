//! The rings that carry calls: how they are opened, grow, and give their memory back.

pub(crate) mod backlog;
pub(crate) mod pieces;
pub(crate) mod pool;
pub(crate) mod rings;
pub(crate) mod shared;
