//! `farside inspect`: looks into a running job.

mod plot;
pub(crate) mod serve;
mod steer;
mod trace;
mod watch;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use farside_viewer::session::{Session, area_object, job_object, missing_object, serve_lines, values};
use farside_viewer::{
    AreaInfo, At, Inspector, JobInfo, Missing, Number, RawFrame, Role, Selection, Target, create_token_file,
};
use serde_json::{Value, json};

use crate::error::ShowError;

/// Look into a running job of your own, on this machine or over the network, without stopping it
#[derive(Debug, Parser)]
#[command(name = "farside-inspect", bin_name = "farside inspect")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    question: Question,
}

#[derive(Debug, Subcommand)]
enum Question {
    /// Print the jobs that show something, and those that `farside run` has started
    Jobs {
        /// Print one JSON object a line
        #[arg(long)]
        json: bool,
    },
    /// Print what a job shows: name, type, shape, units, and the step that all workers have reached
    List {
        #[command(flatten)]
        job: JobArguments,
        /// Print one JSON object a line
        #[arg(long)]
        json: bool,
    },
    /// Print elements of one step, put together from all workers
    Get(GetArguments),
    #[command(flatten)]
    Change(steer::Change),
    Watch(watch::Arguments),
    Plot(plot::Arguments),
    Serve(serve::Arguments),
    /// Answer questions in JSON from the standard input, one a line, until it ends
    ///
    /// A question is an object: {"do": "jobs"}, {"do": "list"} or {"do": "get", "area":
    /// "temperature", "select": "[::4, ::4]"}, with "job" if there are several. The answer is one
    /// line. Elements follow it, in row-major order, if it has their size as "bytes". A failure has
    /// "error". The document docs/inspect.md says where all questions are.
    Session {
        #[command(flatten)]
        job: JobArguments,
    },
    /// Record for some time which calls and waits there are, and sum them up by place
    Trace(trace::Arguments),
    /// Make a file with new tokens, for a job that shows itself on the network
    ///
    /// Start the job with FARSIDE_INSPECT=tcp and FARSIDE_INSPECT_TOKEN_FILE=FILE. The file has a
    /// token with which clients may change things, and one only to look. A client uses the first
    /// of its own file.
    Token {
        /// The file, which must not exist
        file: PathBuf,
    },
}

/// Which job is meant.
#[derive(Debug, Args)]
pub(crate) struct TargetArguments {
    /// The job: its name, its number, NAME/NUMBER, or tcp://HOST:PORT of its process 0; may be left
    /// out if there is one
    #[arg(long, default_value = "", hide_default_value = true)]
    job: String,
    #[command(flatten)]
    token: TokenArguments,
}

#[derive(Debug, Args)]
pub(crate) struct TokenArguments {
    /// The file with the token for a job on the network; otherwise FARSIDE_INSPECT_TOKEN_FILE names
    /// it
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

impl TargetArguments {
    fn target(&self) -> Target {
        self.token.target(&self.job)
    }
}

impl TokenArguments {
    pub(crate) fn target(&self, job: &str) -> Target {
        Target::new(job).token_file(self.token_file.clone())
    }
}

#[derive(Debug, Args)]
struct JobArguments {
    #[command(flatten)]
    target: TargetArguments,
    /// The time for the answer, in seconds
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    timeout: u64,
}

#[derive(Debug, Args)]
struct GetArguments {
    #[command(flatten)]
    job: JobArguments,
    /// The area, with a selection by numpy's rules if it is not all: "temperature[10:20, ::4]"
    area: String,
    /// The step, which must not be over; without this, the next one that can be had
    #[arg(long)]
    step: Option<u64>,
    /// Print one JSON object on one line
    #[arg(long, conflicts_with = "npy")]
    json: bool,
    /// Write the elements to a file of numpy instead
    #[arg(long, value_name = "FILE")]
    npy: Option<PathBuf>,
}

impl JobArguments {
    fn connect(&self) -> Result<Inspector, ShowError> {
        Ok(Inspector::connect(self.target.target())?.deadline(Duration::from_secs(self.timeout)))
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), ShowError> {
    let mut out = BufWriter::new(io::stdout().lock());
    match &arguments.question {
        Question::Jobs { json } => {
            for job in farside_viewer::jobs()? {
                let line = if *json { job_object(&job).to_string() } else { job_line(&job) };
                writeln!(out, "{line}").map_err(ShowError::Output)?;
            }
        }
        Question::List { job, json } => {
            for area in job.connect()?.list()? {
                let line = if *json { area_object(&area).to_string() } else { area_line(&area) };
                writeln!(out, "{line}").map_err(ShowError::Output)?;
            }
        }
        Question::Get(arguments) => get(arguments, &mut out)?,
        Question::Change(change) => steer::run(change, &mut out)?,
        Question::Watch(arguments) => return watch::run(arguments, &mut out),
        Question::Plot(arguments) => plot::run(arguments, &mut out)?,
        Question::Serve(arguments) => serve::run(arguments, &mut out)?,
        Question::Session { job } => {
            let session = Session::new(job.target.target(), Duration::from_secs(job.timeout));
            serve_lines(&session, io::stdin().lock(), &mut out).map_err(ShowError::Session)?;
        }
        Question::Trace(arguments) => trace::run(arguments, &mut out)?,
        Question::Token { file } => {
            create_token_file(file).map_err(|cause| ShowError::WriteFile { path: file.clone(), cause })?
        }
    }
    out.flush().map_err(ShowError::Output)
}

fn get(arguments: &GetArguments, out: &mut impl Write) -> Result<(), ShowError> {
    let GetArguments { job, area, step, json, npy } = arguments;
    let (name, selection) = Selection::with_name(area).map_err(farside_viewer::InspectError::from)?;
    let area = job.connect()?.open_any(name)?;
    let frame = area.get_raw(&selection, step.map_or(At::Now, At::Step))?;
    if let Some(path) = npy {
        let written = File::create(path).and_then(|file| frame.write_npy(file));
        written.map_err(|cause| ShowError::WriteFile { path: path.clone(), cause })?;
    } else {
        print(&frame, area.info(), *json, out)?;
        out.flush().map_err(ShowError::Output)?;
    }
    complete(frame)
}

/// Refuses a frame of which something is missing, after it was printed.
fn complete(frame: RawFrame) -> Result<(), ShowError> {
    let RawFrame { name, missing, .. } = frame;
    if missing.is_empty() { Ok(()) } else { Err(ShowError::Missing { name, missing: listed(&missing) }) }
}

fn listed(missing: &[Missing]) -> String {
    missing.iter().map(Missing::to_string).collect::<Vec<_>>().join(", ")
}

fn job_line(job: &JobInfo) -> String {
    let JobInfo { id, process_count, processes, silent, by_launcher, .. } = job;
    let silent = if silent.is_empty() { String::new() } else { format!(", no answer from {silent:?}") };
    // Where others reach it.
    let first = processes.iter().find(|about| about.process == 0).and_then(|about| about.network.as_ref());
    let network = match first {
        Some(address) => format!("  {address}"),
        None if job.awaits_network() => {
            "; no door on the network: process 0 opens it when it shows something or calls `open_door`".into()
        }
        None => String::new(),
    };
    let by_launcher = match by_launcher.len() {
        0 => String::new(),
        count => format!(", {count} seen through their launcher (they show nothing)"),
    };
    format!("{id}  {} of {process_count} processes{by_launcher}{silent}{network}", processes.len())
}

fn area_line(area: &AreaInfo) -> String {
    let AreaInfo { name, shape, units, .. } = area;
    let element = area.type_name();
    let units = if units.is_empty() { String::new() } else { format!(" {units}") };
    let what = match (area.role, area.step()) {
        (Role::View, None) => "nothing published".into(),
        (Role::View, Some(step)) => format!("step {step}"),
        (Role::Memory, _) => "memory as it is now".into(),
        (Role::Gauge, _) => "gauge".into(),
        (Role::Parameter { least, most }, _) => format!("parameter from {least} to {most}"),
        (Role::Action, _) => return format!("{name}  action"),
        (Role::Probe, _) => return format!("{name}  probe"),
    };
    let writable = if area.is_writable { ", writable" } else { "" };
    format!("{name}  {element}{shape:?}{units}  {what}{writable}")
}

/// The step of a frame, behind other words, and what is missing. Memory as it is now has no step.
fn state_of(frame: &RawFrame) -> String {
    let step = frame.step.map_or(String::new(), |step| format!(", step {step}"));
    if frame.missing.is_empty() { step } else { format!("{step}, without {}", listed(&frame.missing)) }
}

/// Prints elements: as an object on one line, or as text.
fn print(frame: &RawFrame, info: &AreaInfo, json: bool, out: &mut impl Write) -> Result<(), ShowError> {
    if json {
        let values = values(frame)?;
        return print_object(frame, &values, info, out).map_err(ShowError::Output);
    }
    let RawFrame { name, shape, .. } = frame;
    let units = if info.units.is_empty() { String::new() } else { format!(" {}", info.units) };
    let head = format!("# {name} {}{shape:?}{units}{}", info.type_name(), state_of(frame));
    if frame.fields.is_empty() {
        return print_text(frame, &frame.numbers()?, &head, out).map_err(ShowError::Output);
    }
    writeln!(out, "{head}").map_err(ShowError::Output)?;
    for column in frame.columns() {
        let RawFrame { name, element, shape, .. } = &column;
        print_text(&column, &column.numbers()?, &format!("## {name} {element}{shape:?}"), out)
            .map_err(ShowError::Output)?;
    }
    Ok(())
}

/// Prints a line, and then the elements: a row of the last dimension a line, and an empty line
/// between two planes.
fn print_text(frame: &RawFrame, numbers: &[Number], head: &str, out: &mut impl Write) -> io::Result<()> {
    let RawFrame { shape, .. } = frame;
    writeln!(out, "{head}")?;
    let length = |dimension: usize| shape.get(shape.len().wrapping_sub(dimension)).map_or(1, |length| *length as usize);
    let (columns, rows) = (length(1), length(2));
    for (index, row) in numbers.chunks(columns).enumerate() {
        if index > 0 && index % rows == 0 && shape.len() > 2 {
            writeln!(out)?;
        }
        for (column, number) in row.iter().enumerate() {
            write!(out, "{}{number}", if column == 0 { "" } else { " " })?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn print_object(frame: &RawFrame, values: &Value, info: &AreaInfo, out: &mut impl Write) -> io::Result<()> {
    let RawFrame { name, step, element, shape, missing, .. } = frame;
    let mut object = json!({
        "name": name, "type": element.name(), "shape": shape, "units": info.units, "step": step, "values": values,
    });
    if !missing.is_empty() {
        object["missing"] = missing.iter().map(missing_object).collect();
    }
    writeln!(out, "{object}")
}
