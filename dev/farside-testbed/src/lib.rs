//! Emulated machines for tests that would otherwise need a second machine. The tests of the
//! workspace and `cargo xtask` share them.
//!
//! This is a crate of its own for two reasons. The tests of the command kill processes and cut
//! cables between two network namespaces. `cargo xtask netns` lets a developer do the same by hand,
//! and neither may depend on the other. Without the feature `browser`, the crate uses only the
//! standard library, so that `cargo xtask` builds quickly. It runs the programs of util-linux and
//! iproute2 instead of making system calls.
//!
//! Every process that is started here ends with the thread that started it, even if that thread is
//! killed.

#![forbid(unsafe_code)]

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

#[cfg(feature = "browser")]
pub mod browser;
mod command;
mod failure;
mod holdings;
mod left_out;
pub mod netns;
mod patience;
mod running;

pub use command::CommandLine;
pub use failure::Failure;
pub use holdings::Holdings;
pub use left_out::{BEDS, has_library, has_program, is_left_out, python};
pub use patience::{
    DEPTH, deadline, depth, hold_still, is_past, limit, now, scaled, soon, spin_for, wait_for, wait_until,
};
pub use running::{Echo, Running, ended_with_us, ending_with_us, run};

/// Returns a free port of this machine for the process 0 of a job.
///
/// The port lies below those that the system assigns to connections, so no connection takes it
/// before process 0 listens. Programs that run at the same time begin at different ports.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let base = 10_000 + (std::process::id() % 500) as u16 * 40;
    loop {
        let port = base + NEXT.fetch_add(1, Ordering::Relaxed);
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}

/// Returns whether this process may create namespaces and mount without first creating a user
/// namespace.
pub fn is_privileged() -> bool {
    // Bit 21 of the effective capabilities is CAP_SYS_ADMIN.
    const SYS_ADMIN: u64 = 1 << 21;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    effective.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok()).is_some_and(|bits| bits & SYS_ADMIN != 0)
}
