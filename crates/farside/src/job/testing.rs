//! The run-time part of `#[farside::test]`.

use std::time::Duration;

use super::run_member;
use crate::Worker;
use crate::error::Result;
use crate::invoke::named::Names;
use crate::rooms::ROOMS;
use crate::runtime::run::run_process;
use farside_launch::child::{self, Role, StartMethod};
use farside_launch::own_program;
use farside_launch::settings::Choices;
use farside_launch::start::{Launch, Program};

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
/// The processes run this test binary with that one test, and so reach this call again.
///
/// # Panics
/// If the job fails.
#[doc(hidden)]
pub fn run_test(name: &str, shape: TestShape, body: fn(&Worker) -> Result<()>) {
    // The test harness names its tests without the crate.
    let name = name.split_once("::").map_or(name, |(_, test)| test);
    if let Err(error) = run(name, shape, body) {
        panic!("{error}");
    }
}

fn run(name: &str, shape: TestShape, body: fn(&Worker) -> Result<()>) -> Result<()> {
    let choices = Choices { processes: Some(shape.processes), threads: Some(shape.threads), ..Choices::default() };
    match child::role(name, StartMethod::Entry, choices.clone())? {
        Role::Member(member) => run_member(member, Names::of_the_library(), &body),
        Role::Host(member, hosting) => {
            hosting.see_through(|| run_process(member, Names::of_the_library(), ROOMS, &body))
        }
        Role::Launcher => {
            let arguments = [name, "--exact", "--nocapture", "--test-threads=1", "--include-ignored"];
            let program = Program {
                command: own_program()?,
                arguments: arguments.map(Into::into).into(),
                processes: shape.processes,
            };
            let launch = Launch { choices, site: Some(name.into()), ..Launch::new(vec![program]) };
            launch.time_limit(Duration::from_secs(shape.timeout_s)).quiet_stdout().run().map_err(Into::into)
        }
    }
}
