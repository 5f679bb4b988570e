//! The errors of `farside inspect` and `farside top`, and the exit status of each.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use farside_command::{Failure, USAGE};
use farside_viewer::InspectError;

/// Why the command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ShowError {
    /// A value to write is invalid.
    #[error("{0}")]
    Arguments(String),
    /// The elements that were read could not be kept in a file.
    #[error("cannot write {}", path.display())]
    WriteFile {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        #[source]
        cause: io::Error,
    },
    /// The file with the elements to write could not be read.
    #[error("cannot read {}", path.display())]
    ReadFile {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        #[source]
        cause: io::Error,
    },
    /// The job has nothing that the command could end or go on with.
    #[error("{0}")]
    NotHeld(String),
    /// The streams of a session failed.
    #[error("the session ended: {0}")]
    Session(io::Error),
    /// The page's server could not be started.
    #[error("the page cannot be served at {address}: {cause}; choose another address, such as 127.0.0.1:0")]
    Page {
        /// The address.
        address: SocketAddr,
        /// The system's reason.
        cause: io::Error,
    },
    /// An area cannot be drawn.
    #[error(
        "{name:?} is selected with {dimensions} dimensions, and a picture has one or two: select fewer, such as [0, :, :]"
    )]
    Dimensions {
        /// The name of the area.
        name: String,
        /// The number of dimensions selected.
        dimensions: usize,
    },
    /// A job could not be looked into.
    #[error(transparent)]
    Inspect(#[from] InspectError),
    /// A job could not be shown.
    #[error(transparent)]
    Expose(#[from] farside_inspect::ExposeError),
    /// Elements are missing. The others were printed.
    #[error("{name:?} is not whole, because processes are gone: there is nothing of {missing}")]
    Missing {
        /// The name of the area.
        name: String,
        /// The parts.
        missing: String,
    },
    /// The signals that end a server could not be received.
    #[error("cannot receive signals: {0}")]
    Signals(io::Error),
    /// The standard output is closed.
    #[error("writing to the standard output failed: {0}")]
    Output(io::Error),
}

impl Failure for ShowError {
    fn exit_status(&self) -> u8 {
        match self {
            Self::Arguments(_) | Self::Expose(_) | Self::Inspect(InspectError::Selection(_)) => USAGE,
            _ => 1,
        }
    }
}
