//! Prints events of the libraries, if the user asks for them.

use std::io;

use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt;
use tracing_subscriber::prelude::*;

/// The variable that selects events: levels and targets, separated by commas.
const LOG: &str = "FARSIDE_LOG";

/// A value of [`LOG`] that is no filter.
#[derive(Debug, thiserror::Error)]
#[error(
    "invalid value {value:?} for {LOG}: expected levels and targets such as `debug` or `warn,farside_launch=trace`"
)]
pub(crate) struct InvalidFilter {
    value: String,
}

/// Prints the events that [`LOG`] selects to the standard error from now on.
pub(crate) fn print() -> Result<(), InvalidFilter> {
    let Some(value) = std::env::var_os(LOG) else { return Ok(()) };
    let value = value.to_string_lossy();
    let Ok(filter) = value.parse::<Targets>() else { return Err(InvalidFilter { value: value.into() }) };
    let lines = fmt::layer().with_writer(io::stderr).with_thread_names(true);
    // An error means that there is a subscriber, which then receives the events.
    let _ = tracing_subscriber::registry().with(lines).with(filter).try_init();
    Ok(())
}
