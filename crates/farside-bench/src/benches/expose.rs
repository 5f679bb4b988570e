//! What it costs a program that others look at it.

mod trace;

use crate::case::Case;
use crate::fabric::Fabric;

pub(crate) const ABOUT: &str = "what it costs a program that others look at it";

pub(crate) fn cases(on: &Fabric) -> Vec<Case> {
    match on {
        Fabric::Shm => trace::cases(),
        _ => Vec::new(),
    }
}
