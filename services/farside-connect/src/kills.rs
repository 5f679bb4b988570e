//! Points of the protocol at which tests kill this process.

use std::sync::atomic::{AtomicI64, Ordering};

/// The number of points after which this process is killed.
static POINTS_LEFT: AtomicI64 = AtomicI64::new(i64::MAX);

/// Has this process killed when it has passed this number of points.
pub fn die_after(points: i64) {
    POINTS_LEFT.store(points, Ordering::Relaxed);
}

/// Passes a point.
pub(crate) fn point() {
    if POINTS_LEFT.fetch_sub(1, Ordering::Relaxed) == 1 {
        farside_sys::process::kill_self();
    }
}
