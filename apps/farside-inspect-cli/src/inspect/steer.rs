//! `farside inspect put`, `act`, `ask`, `pause`, `step`, `resume`, `lock`, `unlock`: changes a job.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use clap::{Args, Subcommand};
use farside_viewer::{At, ElementType, InspectError, Inspector, Selection};

use super::JobArguments;
use crate::error::ShowError;

/// The time after which this program looks whether its pause or lock has ended.
const LOOK_AFTER: Duration = Duration::from_millis(200);

#[derive(Debug, Subcommand)]
pub(crate) enum Change {
    /// Write elements of a writable view or of memory, or set a parameter
    Put(PutArguments),
    /// Have the job run an action, on all workers that have it
    Act {
        #[command(flatten)]
        job: JobArguments,
        /// The action
        action: String,
    },
    /// Ask a probe, and print its answers, one worker's a line
    Ask {
        #[command(flatten)]
        job: JobArguments,
        /// The probe
        probe: String,
        /// The question, which the program defines
        #[arg(default_value = "")]
        question: String,
        /// Ask this worker only
        #[arg(long)]
        worker: Option<u32>,
    },
    /// Have all workers stay after one step, until this command is ended, or `resume` is used
    Pause {
        #[command(flatten)]
        job: JobArguments,
        /// The step; without this, the next one that can be had
        #[arg(long)]
        at: Option<u64>,
    },
    /// Let a job that is paused complete one more step
    Step {
        #[command(flatten)]
        job: JobArguments,
    },
    /// Let a job that is paused go on
    Resume {
        #[command(flatten)]
        job: JobArguments,
    },
    /// Lock exposed memory, until this command is ended, `unlock` is used, or 10 s are over
    Lock {
        #[command(flatten)]
        job: JobArguments,
        /// The memory
        area: String,
    },
    /// Unlock exposed memory that a reader has locked
    Unlock {
        #[command(flatten)]
        job: JobArguments,
        /// The memory
        area: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct PutArguments {
    #[command(flatten)]
    job: JobArguments,
    /// The area, with a selection by numpy's rules if it is not all: "temperature[10:20, ::4]"
    area: String,
    /// The values in row-major order: as many as are selected, or one for all of them
    #[arg(required_unless_present = "raw", allow_negative_numbers = true)]
    values: Vec<String>,
    /// Write the bytes of this file instead, in row-major order
    #[arg(long, value_name = "FILE", conflicts_with = "values")]
    raw: Option<PathBuf>,
}

pub(crate) fn run(change: &Change, out: &mut impl Write) -> Result<(), ShowError> {
    match change {
        Change::Put(arguments) => {
            let step = put(arguments)?;
            say_step(step, out)
        }
        Change::Act { job, action } => {
            let step = job.connect()?.act(action)?;
            say_step(step, out)
        }
        Change::Ask { job, probe, question, worker } => {
            for (worker, answer) in job.connect()?.ask(probe, *worker, question)? {
                writeln!(out, "{worker} {}", String::from_utf8_lossy(&answer)).map_err(ShowError::Output)?;
            }
            Ok(())
        }
        Change::Pause { job, at } => {
            let job = job.connect()?;
            let paused = job.pause_at(at.map_or(At::Next, At::Step))?;
            let step = paused.step().map_or(String::new(), |step| format!(" after step {step}"));
            say(out, &format!("paused{step}"))?;
            while job.is_paused()?.is_some() {
                thread::sleep(LOOK_AFTER);
            }
            say(out, "goes on")
        }
        Change::Step { job } => match job.connect()?.step_on()? {
            Some(step) => say(out, &format!("paused after step {step}")),
            None => Err(ShowError::NotHeld("the job is not paused: `farside inspect pause` does".into())),
        },
        Change::Resume { job } => match job.connect()?.resume()? {
            true => say(out, "goes on"),
            false => Err(ShowError::NotHeld("the job is not paused".into())),
        },
        Change::Lock { job, area } => {
            let job = job.connect()?;
            let _locked = job.lock(area)?;
            say(out, "locked")?;
            while job.is_locked(area)? {
                thread::sleep(LOOK_AFTER);
            }
            say(out, "unlocked")
        }
        Change::Unlock { job, area } => match job.connect()?.unlock(area)? {
            true => say(out, "unlocked"),
            false => Err(ShowError::NotHeld(format!("no reader has locked {area:?}"))),
        },
    }
}

fn say(out: &mut impl Write, line: &str) -> Result<(), ShowError> {
    let written = writeln!(out, "{line}").and_then(|()| out.flush());
    written.map_err(ShowError::Output)
}

fn say_step(step: Option<u64>, out: &mut impl Write) -> Result<(), ShowError> {
    let after = step.map_or("done".into(), |step| format!("done after step {step}"));
    say(out, &after)
}

fn put(arguments: &PutArguments) -> Result<Option<u64>, ShowError> {
    let PutArguments { job, area, values, raw } = arguments;
    let (name, selection) = Selection::with_name(area).map_err(InspectError::from)?;
    let job: Inspector = job.connect()?;
    let area = job.open_any(name)?;
    let selected = selection.of(&area.info().shape).map_err(InspectError::from)?;
    let count: u64 = selected.shape().iter().product();
    let bytes = match raw {
        Some(path) => fs::read(path).map_err(|cause| ShowError::ReadFile { path: path.clone(), cause })?,
        None if values.len() as u64 != count && values.len() != 1 => {
            let given = values.len();
            let what = format!("{given} values were given for {count} elements: give as many, or one for all");
            return Err(ShowError::Arguments(what));
        }
        None => {
            let element = area.info().element;
            let encoded: Vec<Vec<u8>> = values.iter().map(|value| encode(value, element)).collect::<Result<_, _>>()?;
            match &encoded[..] {
                [one] => one.repeat(usize::try_from(count).unwrap_or(usize::MAX).min(isize::MAX as usize / one.len())),
                all => all.concat(),
            }
        }
    };
    Ok(area.put_raw(&selection, &bytes)?)
}

/// The bytes of a value.
fn encode(text: &str, element: ElementType) -> Result<Vec<u8>, ShowError> {
    macro_rules! parse {
        ($type:ty) => {
            text.parse::<$type>().ok().map(|value| value.to_ne_bytes().to_vec())
        };
    }
    let bytes = match element {
        ElementType::Bool => match text {
            "true" | "1" => Some(vec![1]),
            "false" | "0" => Some(vec![0]),
            _ => None,
        },
        ElementType::U8 => parse!(u8),
        ElementType::I8 => parse!(i8),
        ElementType::U16 => parse!(u16),
        ElementType::I16 => parse!(i16),
        ElementType::U32 => parse!(u32),
        ElementType::I32 => parse!(i32),
        ElementType::U64 => parse!(u64),
        ElementType::I64 => parse!(i64),
        ElementType::F32 => parse!(f32),
        ElementType::F64 => parse!(f64),
        ElementType::C64 => complex(text).map(|(re, im)| bytes_of([re as f32, im as f32].map(f32::to_ne_bytes))),
        ElementType::Struct(_) => None,
        ElementType::C128 => complex(text).map(|(re, im)| bytes_of([re, im].map(f64::to_ne_bytes))),
    };
    bytes.ok_or_else(|| ShowError::Arguments(format!("invalid value {text:?}: expected a value of {element}")))
}

fn bytes_of<const N: usize>(parts: [[u8; N]; 2]) -> Vec<u8> {
    parts.concat()
}

/// A complex number as it is printed: `1-2i`. Without an imaginary part it is a real one.
fn complex(text: &str) -> Option<(f64, f64)> {
    let Some(number) = text.strip_suffix('i') else { return Some((text.parse().ok()?, 0.0)) };
    // The sign between the parts is the last one that belongs to no exponent.
    let sign = |(at, char): &(usize, char)| *at > 0 && "+-".contains(*char) && !number[..*at].ends_with(['e', 'E']);
    let at = number.char_indices().rfind(sign).map_or(0, |(at, _)| at);
    let real = if at == 0 { 0.0 } else { number[..at].parse().ok()? };
    Some((real, number[at..].parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complex_numbers_are_written_as_they_are_printed() {
        assert_eq!(complex("1-2i"), Some((1.0, -2.0)));
        assert_eq!(complex("-1e-3+2e-4i"), Some((-1e-3, 2e-4)));
        assert_eq!((complex("2.5"), complex("-3i")), (Some((2.5, 0.0)), Some((0.0, -3.0))));
        assert_eq!((complex("i2"), complex("1+i")), (None, None));
    }

    #[test]
    fn values_are_of_the_type_of_the_area() {
        assert_eq!(encode("300", ElementType::U16).unwrap(), 300_u16.to_ne_bytes());
        assert_eq!(encode("-1", ElementType::I8).unwrap(), [255]);
        assert!(encode("300", ElementType::U8).is_err() && encode("2", ElementType::Bool).is_err());
        assert_eq!(encode("true", ElementType::Bool).unwrap(), [1]);
    }
}
