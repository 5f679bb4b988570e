//! Starting a job, and learning of deaths.

pub(crate) mod child;
pub(crate) mod control;
pub(crate) mod coordinator;
pub(crate) mod host;
pub(crate) mod kill_point;
pub(crate) mod layout;
pub(crate) mod nic;
pub(crate) mod rendezvous;
pub(crate) mod ring_options;
pub(crate) mod settings;
pub mod start;

use std::path::PathBuf;

use crate::error::{Error, Result};

/// The file that this process runs.
pub(crate) fn own_program() -> Result<PathBuf> {
    std::env::current_exe().map_err(|cause| Error::System { doing: "finding out which program this is", cause })
}
