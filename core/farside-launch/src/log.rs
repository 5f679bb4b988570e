//! Prints events of the library, if the program and the user ask for them.
//!
//! The crates of Farside emit events by `tracing` and print none of them. A program that installs a
//! subscriber of its own receives them. A program without one that is built with the feature `log`,
//! such as the command `farside`, prints the events that the variable `FARSIDE_LOG` selects.

use std::io;

use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt;
use tracing_subscriber::prelude::*;

use crate::error::Result;
use crate::settings::{own_environment, variable};

/// The variable that selects events, as `RUST_LOG` does elsewhere: levels and targets, separated by
/// commas, such as `debug` or `warn,farside_launch=trace`. Events print nothing while it is unset.
#[cfg(feature = "log")]
pub const LOG: &str = "FARSIDE_LOG";

/// Prints the events that [`LOG`] selects to the standard error from now on.
///
/// Does nothing if the variable is unset, or if the program has a subscriber already. A job calls
/// this when it runs; a program calls it earlier to see what happens before. The name of the thread
/// stands before each event, and the thread of a worker is named after the worker.
///
/// # Errors
/// [`JobEnded`](crate::LaunchError::JobEnded) if the variable is no filter.
pub fn log_to_stderr() -> Result<()> {
    let Some(filter) = variable::<Targets>(&own_environment, LOG)? else { return Ok(()) };
    let lines = fmt::layer().with_writer(io::stderr).with_thread_names(true);
    // An error means that there is a subscriber, which then receives the events.
    let _ = tracing_subscriber::registry().with(lines).with(filter).try_init();
    Ok(())
}
