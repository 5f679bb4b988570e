//! The command under other launchers: it prints one result, and reports an error once.

use std::process::{Child, Command, Output, Stdio};

use farside_testbed::{CommandLine, wait_for};
use serde_json::Value;

const FARSIDE: CommandLine = CommandLine(env!("CARGO_BIN_EXE_farside"));

const HEX: [&str; 9] = ["hex", "--plain", "--size", "5", "--rollouts", "300", "--json", "-n", "9"];

fn farside(arguments: &[&str]) -> Command {
    captured(FARSIDE.command(arguments))
}

fn captured(mut command: Command) -> Command {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Waits for all processes and returns what they printed, which fits into a pipe.
fn outputs(children: Vec<Child>) -> Vec<Output> {
    let end = |mut child: Child| {
        wait_for("a child ends", || child.try_wait().expect("a child can be waited for"));
        child.wait_with_output().expect("the output can be read")
    };
    children.into_iter().map(end).collect()
}

/// Starts a rank for each command as `torchrun` would.
fn ranks(commands: Vec<Command>) -> Vec<Output> {
    let port = farside_testbed::free_port();
    let size = commands.len().to_string();
    let start = |(rank, mut command): (usize, Command)| {
        command.env("RANK", rank.to_string()).env("WORLD_SIZE", &size).env("MASTER_ADDR", "127.0.0.1");
        command.env("MASTER_PORT", port.to_string()).env("FARSIDE_SECRET", "swordfish");
        command.spawn().expect("the command can be started")
    };
    outputs(commands.into_iter().enumerate().map(start).collect())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn assert_one_result(printed: &str, processes: u64) {
    assert!(printed.ends_with('\n') && printed.lines().count() == 1, "{printed}");
    let result: Value = serde_json::from_str(printed).expect("the line is an object");
    assert_eq!(result["processes"], processes, "what the launcher started counts: {printed}");
    assert!(result["rollouts"].as_u64().unwrap() >= 300);
}

#[test]
fn ranks_print_one_result() {
    let outputs = ranks((0..3).map(|_| farside(&HEX)).collect());
    assert!(outputs.iter().all(|output| output.status.success() && output.stderr.is_empty()), "{outputs:?}");
    assert_one_result(&text(&outputs[0].stdout), 3);
    assert!(outputs[1..].iter().all(|output| output.stdout.is_empty()), "{outputs:?}");
}

#[test]
fn ranks_report_an_error_once_and_all_fail() {
    let commands = (0..3).map(|rank| {
        let mut command = farside(&HEX);
        command.env("FARSIDE_HOST_ID", rank.to_string()).env("FARSIDE_FABRIC", "shm");
        command
    });
    let outputs = ranks(commands.collect());
    assert!(outputs.iter().all(|output| output.status.code() == Some(1) && output.stdout.is_empty()), "{outputs:?}");
    let report = text(&outputs[0].stderr);
    assert!(report.starts_with("farside: error: process 0 and process 1 are on different machines"), "{report}");
    assert!(outputs[1..].iter().all(|output| output.stderr.is_empty()), "{outputs:?}");
}

#[test]
fn the_option_wins_over_the_variable() {
    let commands = (0..2).map(|_| {
        let mut command = farside(&HEX);
        command.args(["--fabric", "shm"]).env("FARSIDE_FABRIC", "ofi:tcp");
        command
    });
    let outputs = ranks(commands.collect());
    assert!(outputs.iter().all(|output| output.status.success()), "{outputs:?}");
}

mod deep {
    use super::*;

    #[test]
    fn mpirun_starts_a_job() {
        farside_testbed::needs!("mpi");
        let mut command = Command::new("mpirun");
        command.args(["--oversubscribe", "-n", "4", env!("CARGO_BIN_EXE_farside")]).args(HEX);
        command
            .env_remove("FARSIDE_FABRIC")
            .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
            .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        let outputs = outputs(vec![
            captured(command).spawn().expect("mpirun can be started (on Debian: apt-get install openmpi-bin)"),
        ]);
        assert!(outputs[0].status.success(), "{outputs:?}");
        assert_one_result(&text(&outputs[0].stdout), 4);
    }
}
