//! Starting a job, and detecting the loss of its processes.

pub mod child;
pub mod control;
pub mod coordinator;
mod error;
pub mod host;
pub mod kill_point;
pub mod layout;
#[cfg(feature = "log")]
pub mod log;
pub mod member;
pub mod nic;
pub mod rendezvous;
pub mod ring_options;
pub mod settings;
pub mod start;

pub use error::{LaunchError, ProcessEnd, RendezvousError, Result};

use std::path::PathBuf;

use crate::error::LaunchError as Error;

/// The messages of this crate, for tests of their decoders.
#[doc(hidden)]
pub fn message_kinds() -> Vec<farside_wire::check::MessageKind> {
    [control::message_kinds(), rendezvous::message_kinds()].concat()
}

/// Returns the file that this process runs.
pub fn own_program() -> Result<PathBuf> {
    std::env::current_exe().map_err(|cause| Error::System { doing: "finding out which program this is", cause })
}
