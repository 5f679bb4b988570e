//! Machines to test on that need no second machine: what the tests of the workspace and `cargo xtask` share.
//!
//! A crate of its own, because the tests of the command kill processes and cut cables between two network namespaces,
//! and `cargo xtask netns` lets a developer do the same by hand; neither may depend on the other. It stands on the
//! standard library alone, so that `cargo xtask` is built in a moment, and uses the programs of util-linux and iproute2
//! instead of system calls of its own.
//!
//! Whatever is started here ends with the thread that started it, even if that is killed.

#![forbid(unsafe_code)]

mod failure;
pub mod netns;
mod running;

pub use failure::Failure;
pub use running::{Echo, Running, ended_with_us, ending_with_us, run};

/// The variable that names the beds to be left out, separated by commas; `cargo xtask test --without BED` sets it.
pub const WITHOUT: &str = "FARSIDE_TEST_WITHOUT";

/// Whether the developer asked for tests to be run without this bed. A test that needs a bed asks this first and, when
/// it is not left out, fails if the bed cannot be had: nothing passes silently.
pub fn is_left_out(bed: &str) -> bool {
    std::env::var(WITHOUT).is_ok_and(|beds| beds.split(',').any(|name| name == bed))
}

/// Whether this process may make namespaces and mount without asking for a user namespace first.
pub fn is_privileged() -> bool {
    // Bit 21 of the effective capabilities is CAP_SYS_ADMIN.
    const SYS_ADMIN: u64 = 1 << 21;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    effective.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok()).is_some_and(|bits| bits & SYS_ADMIN != 0)
}
