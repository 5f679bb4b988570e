//! `farside inspect watch`.

use std::io::{self, Write};
use std::time::Duration;

use clap::Args;
use farside_viewer::{InspectError, Selection};

use super::{JobArguments, print};
use crate::error::ShowError;

/// Print elements again and again, each time of one step
///
/// A step is printed once. Steps between two looks are left out. It ends with the job, when the
/// program drops the area, or after the last of --count.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    job: JobArguments,
    /// The area, with a selection by numpy's rules if it is not all: "temperature[10:20, ::4]"
    area: String,
    /// How often to look, in times a second
    #[arg(long, value_name = "HZ", default_value_t = 2.0, value_parser = rate)]
    rate: f64,
    /// The number of steps to print
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
}

fn rate(text: &str) -> Result<f64, &'static str> {
    let rate = text.parse().ok().filter(|rate| (0.001..=1000.0).contains(rate));
    rate.ok_or("give times a second from 0.001 to 1000")
}

pub(super) fn run(arguments: &Arguments, out: &mut impl Write) -> Result<(), ShowError> {
    let Arguments { job, area, rate, count, json } = arguments;
    let (name, selection) = Selection::with_name(area).map_err(InspectError::from)?;
    let area = job.connect()?.open_any(name)?;
    let frames = area.watch_raw(&selection, Duration::from_secs_f64(1.0 / rate));
    let frames = frames.take(count.map_or(usize::MAX, |count| usize::try_from(count).unwrap_or(usize::MAX)));
    for (printed, frame) in frames.enumerate() {
        let frame = match frame {
            // The end of the job is the end of what can be watched.
            Err(error) if error.is_gone() && printed > 0 && count.is_none() => break,
            frame => frame?,
        };
        let printed = print(&frame, area.info(), *json, out).and_then(|()| out.flush().map_err(ShowError::Output));
        match printed {
            // A program such as `head` has read enough.
            Err(ShowError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => break,
            printed => printed?,
        }
    }
    Ok(())
}
