//! Starting a job, and detecting the loss of its processes.

pub mod child;
pub mod control;
pub mod coordinator;
mod error;
pub mod host;
pub mod kill_point;
pub mod layout;
pub mod log;
pub mod nic;
pub mod rendezvous;
pub mod ring_options;
pub mod settings;
pub mod start;

pub use error::{LaunchError, ProcessEnd, RendezvousError, Result};

use std::path::PathBuf;

use crate::error::LaunchError as Error;

/// Decodes arbitrary bytes with every decoder of this crate, for a fuzzer: the control link, the
/// greeting of the rendezvous, and the bulletin of PMIx.
///
/// # Panics
/// If a decoded value changes when it is encoded and decoded once more.
pub fn fuzz_decode(bytes: &[u8]) {
    control::fuzz_decode(bytes);
    rendezvous::fuzz_decode(bytes);
}

/// Returns the file that this process runs.
pub fn own_program() -> Result<PathBuf> {
    std::env::current_exe().map_err(|cause| Error::System { doing: "finding out which program this is", cause })
}
