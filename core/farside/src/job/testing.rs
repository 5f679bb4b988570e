//! The run-time part of `#[farside::test]`.

use std::fs::File;
use std::io::{Read, Seek};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use farside_sys::file::nameless;

use crate::Worker;
use crate::error::{Error, Result};
use crate::invoke::named::Names;
use crate::rooms::ROOMS;
use crate::runtime::run::{Body, run_process};
use farside_launch::child::{self, Role, StartMethod};
use farside_launch::settings::{Choices, default_deadline, own_environment};
use farside_launch::start::{Launch, Program};
use farside_launch::{host, own_program};

/// The job that a test asks for.
#[derive(Clone, Copy, Debug)]
#[doc(hidden)]
pub struct TestShape {
    pub processes: u32,
    pub threads: u32,
    pub timeout_s: u64,
}

/// Runs a test as a job. `name` is the test's path, with the crate's name in front.
///
/// The processes run this test binary with that one test, and so reach this call again. What they
/// print becomes output of the test, which the test harness shows if the test fails.
///
/// # Panics
/// If the job fails.
#[doc(hidden)]
#[track_caller]
pub fn run_test<E>(name: &str, shape: TestShape, body: fn(&Worker) -> Result<(), E>)
where
    E: Into<Box<dyn std::error::Error + Send + Sync>> + 'static,
{
    // The test harness names its tests without the crate.
    let name = name.split_once("::").map_or(name, |(_, test)| test);
    if let Err(error) = run(name, shape, &|me: &Worker| body(me).map_err(Error::program)) {
        panic!("{error}");
    }
}

fn run(name: &str, mut shape: TestShape, body: &Body<'_>) -> Result<()> {
    let machines = host::machines(&own_environment)?;
    if machines > 1 {
        // Each process then has neighbors on its own machine and on another.
        shape.processes = shape.processes.max(machines.saturating_mul(2));
    }
    let choices = Choices { processes: Some(shape.processes), threads: Some(shape.threads), ..Choices::default() };
    match child::role(name, StartMethod::Entry, choices.clone())? {
        Role::Member(member) if member.control.leads_to_a_process() => {
            run_process(member, Names::of_the_library(), ROOMS, body)
        }
        Role::Member(member) => {
            let run = AssertUnwindSafe(|| run_process(member, Names::of_the_library(), ROOMS, body));
            let is_well = matches!(catch_unwind(run), Ok(Ok(())));
            // The launcher reports on the test. The test harness of this process must not, too.
            std::process::exit(i32::from(!is_well));
        }
        Role::Host(member, hosting) => {
            hosting.see_through(|| run_process(member, Names::of_the_library(), ROOMS, body))
        }
        Role::Launcher => {
            let arguments = [name, "--exact", "--nocapture", "--quiet", "--test-threads=1", "--include-ignored"];
            let program = Program {
                command: own_program()?,
                arguments: arguments.map(Into::into).into(),
                processes: shape.processes,
            };
            let outputs = (0..shape.processes).map(|_| nameless("farside test").map(Arc::new));
            let outputs: Vec<_> = outputs.collect::<std::io::Result<_>>()?;
            let launch = Launch { choices, site: Some(name.into()), outputs, ..Launch::new(vec![program]) };
            let outputs = launch.outputs.clone();
            let limit = Duration::from_secs(shape.timeout_s);
            // Where processes wait longer for each other, a test may take longer, too.
            let limit = default_deadline(&own_environment)?.map_or(limit, |deadline| limit.max(deadline));
            let verdict = launch.time_limit(limit).run();
            for (process, output) in outputs.iter().enumerate() {
                show(process, output)?;
            }
            Ok(verdict?)
        }
    }
}

/// Prints what a process has printed, as output of this test.
fn show(process: usize, mut output: &File) -> std::io::Result<()> {
    let mut text = Vec::new();
    output.rewind()?;
    output.read_to_end(&mut text)?;
    let text = String::from_utf8_lossy(&text);
    // The test harness of the process prints this first.
    let text = text.strip_prefix("\nrunning 1 test\n").unwrap_or(&text).trim_end();
    if !text.is_empty() {
        println!("process {process} printed:\n{text}");
    }
    Ok(())
}
