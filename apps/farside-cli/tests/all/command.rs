//! The command line from outside, as scripts see it.

use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};

use farside_testbed::{CommandLine, wait_until};
use serde_json::Value;

const FARSIDE: CommandLine = CommandLine(env!("CARGO_BIN_EXE_farside"));

#[test]
fn impossible_boards_are_refused() {
    FARSIDE.assert_refused(&["hex", "--local", "--size", "1"], 2, &["size 1", "2 to 16"]);
    FARSIDE.assert_refused(&["hex", "--local", "--size", "17"], 2, &["size 17", "2 to 16"]);
    FARSIDE.assert_refused(&["hex", "--local", "--size", "-1"], 2, &["-1"]);
}

#[test]
fn illegal_moves_are_named() {
    let hex = ["hex", "--local", "--size", "5", "--moves"];
    let with = |moves| [&hex[..], &[moves]].concat();
    FARSIDE.assert_refused(&with("a1 b2 a1"), 2, &["move 3, a1", "occupied"]);
    FARSIDE.assert_refused(&with("a1 f1"), 2, &["move 2, f1", "off the board", "e5"]);
    FARSIDE.assert_refused(&with("a1 pass 7c"), 2, &["move 3", "7c", "such as c4, or pass"]);
}

#[test]
fn a_game_that_is_over_is_not_searched() {
    let hex = ["hex", "--local", "--size", "2", "--moves"];
    let with = |moves| [&hex[..], &[moves]].concat();
    FARSIDE.assert_refused(&with("a1 b1 a2"), 2, &["black has won", "leave out"]);
    FARSIDE.assert_refused(&with("pass a1 pass b1"), 2, &["white has won"]);
    FARSIDE.assert_refused(&with("a1 b1 a2 b2"), 2, &["move 4, b2", "black has won"]);
}

#[test]
fn budgets_and_numbers_of_nothing_are_refused() {
    FARSIDE.assert_refused(&["hex", "--local", "--rollouts", "0"], 2, &["zero", "at least one rollout"]);
    FARSIDE.assert_refused(&["hex", "--local", "--seconds", "0"], 2, &["above 0"]);
    FARSIDE.assert_refused(&["hex", "--local", "--rollouts", "9", "--seconds", "1"], 2, &["--rollouts", "--seconds"]);
    FARSIDE.assert_refused(&["hex", "-n", "0"], 2, &["--processes", "at least one"]);
    FARSIDE.assert_refused(&["hex", "-t", "0"], 2, &["--threads", "at least one"]);
    FARSIDE.assert_refused(&["hex", "--local", "-n", "3"], 2, &["3", "leave out -n"]);
    FARSIDE.assert_refused(&["run", "-n", "0", "true"], 2, &["0 processes", "at least one"]);
    FARSIDE.assert_refused(&["run", "-n", "1", "true", ":", "-n", "0", "true"], 2, &["at least one"]);
    FARSIDE.assert_refused(&["run", "-n", "1", "-t", "0", "true"], 2, &["at least one worker thread"]);
}

#[test]
fn unknown_fabrics_are_refused() {
    FARSIDE.assert_refused(&["hex", "--local", "--fabric", "sim:fdr"], 2, &["sim:fdr", "shm", "ofi:PROVIDER"]);
    FARSIDE.assert_refused(&["run", "-n", "1", "--fabric", "verbs", "true"], 2, &["verbs", "shm"]);
}

#[test]
fn missing_arguments_are_named() {
    FARSIDE.assert_refused(&["run", "-n", "2"], 2, &["PROGRAM"]);
    FARSIDE.assert_refused(&["run", "true"], 2, &["-n"]);
    FARSIDE.assert_refused(&["run", "-n", "2", "true", ":", "-n", "1"], 2, &["part 2", "no program"]);
    FARSIDE.assert_refused(&["run", "-n", "1", "./no-such-program"], 127, &["./no-such-program"]);
    FARSIDE.assert_refused(&["conquer"], 2, &["conquer"]);
}

#[test]
fn a_job_ends_with_the_status_of_its_process() {
    FARSIDE.assert_refused(&["run", "-n", "2", "sh", "-c", "exit 7"], 7, &["status 7"]);
    FARSIDE.assert_refused(&["run", "-n", "1", "sh", "-c", "kill -9 $$"], 137, &["signal 9"]);
    FARSIDE.assert_refused(&["run", "-n", "1", "--timeout", "0.1", "sleep", "60"], 124, &["time limit"]);
}

#[test]
fn a_search_prints_one_line_and_the_same_for_the_same_seed() {
    let arguments = [
        "hex",
        "--local",
        "--plain",
        "--json",
        "--size",
        "5",
        "--rollouts",
        "300",
        "--seed",
        "3",
        "--moves",
        "C3 pass",
    ];
    let [first, second] = [(); 2].map(|()| {
        let text = FARSIDE.printed(&arguments);
        assert!(text.ends_with('\n') && text.lines().count() == 1, "{text}");
        serde_json::from_str::<Value>(&text).expect("the line is an object")
    });
    let timed = ["seconds", "rollouts_per_s"];
    let keys = [
        "size",
        "to_move",
        "moves",
        "move",
        "win_rate",
        "rollouts",
        "simulations",
        "seconds",
        "rollouts_per_s",
        "processes",
        "threads",
        "messages_per_rollout",
        "bytes_per_rollout",
    ];
    assert_eq!(first.as_object().map(serde_json::Map::len), Some(keys.len()), "{first}");
    for key in keys {
        assert!(!first[key].is_null(), "{key}: {first}");
        assert!(first[key] == second[key] || timed.contains(&key), "{key}: {first} {second}");
    }
    assert_eq!((&first["size"], &first["to_move"], &first["moves"]), (&5.into(), &"black".into(), &"c3 pass".into()));
    assert_eq!((&first["rollouts"], &first["processes"], &first["threads"]), (&300.into(), &1.into(), &1.into()));
}

#[test]
fn connections_are_seen_unless_the_search_is_plain() {
    let search = ["hex", "--local", "--json", "--size", "5", "--rollouts", "2000"];
    let win_rate = |more: &[&str]| {
        let found: Value =
            serde_json::from_str(&FARSIDE.printed(&[&search, more].concat())).expect("the line is an object");
        found["win_rate"].as_f64()
    };
    assert!(win_rate(&["--plain"]) < Some(1.0));
    assert_eq!(win_rate(&[]), Some(1.0));
    FARSIDE.assert_refused(&["hex", "--connections"], 2, &["--connections"]);
}

#[test]
fn a_search_on_a_job_prints_one_line() {
    for (processes, threads) in [("2", "1"), ("1", "2")] {
        let text = FARSIDE.printed(&[
            "hex",
            "--plain",
            "-n",
            processes,
            "-t",
            threads,
            "--json",
            "--size",
            "5",
            "--rollouts",
            "3000",
        ]);
        assert_eq!(text.lines().count(), 1, "{text}");
        let found: Value = serde_json::from_str(&text).expect("the line is an object");
        assert_eq!(found["rollouts"], 3000, "{text}");
        assert_eq!((found["processes"].to_string(), found["threads"].to_string()), (processes.into(), threads.into()));
        assert!(found["messages_per_rollout"].as_f64() >= Some(0.0), "{text}");
    }
}

/// Starts a search on three processes that only a failure ends. Returns the launcher and the
/// processes, in their order.
fn start_search(mut command: Command) -> (Child, Vec<u32>) {
    command.args(["hex", "-n", "3", "--seconds", "3600"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let launcher = command.spawn().expect("the command can be started");
    let mut processes = Vec::new();
    wait_until("three processes run", || {
        processes = children(launcher.id());
        processes.len() == 3
    });
    (launcher, processes)
}

fn send_signal(signal: &str, pid: u32) {
    let sent = Command::new("kill").args([signal, &pid.to_string()]).status().expect("there is a `kill`");
    assert!(sent.success());
}

#[test]
fn a_search_that_loses_a_process_fails_and_names_it() {
    for doomed in 0..3 {
        let (launcher, processes) = start_search(FARSIDE.command(&[]));
        send_signal("-KILL", processes[doomed]);
        let output = launcher.wait_with_output().expect("the command ends");
        let complaints = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(128 + 9), "{complaints}");
        assert!(
            output.stdout.is_empty() && complaints.contains(&format!("process {doomed} was killed by signal 9")),
            "{complaints}"
        );
        assert_eq!(complaints.matches("farside: error").count(), 1, "{complaints}");
    }
}

#[test]
fn an_interrupt_ends_everything() {
    // The caller may ignore interrupts, and its children inherit that.
    let mut command = Command::new("env");
    command.args(["--default-signal=INT", env!("CARGO_BIN_EXE_farside")]);
    let (launcher, processes) = start_search(command);
    send_signal("-INT", launcher.id());
    let output = launcher.wait_with_output().expect("the command ends");
    assert_eq!(output.status.signal(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
    wait_until("all have ended", || !processes.iter().any(|pid| is_running(*pid)));
}

/// Returns whether a process exists and has not ended.
fn is_running(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with(['Z', 'X']))
}

/// Returns the children of a process, oldest first.
fn children(parent: u32) -> Vec<u32> {
    let parent_of = |pid: u32| -> Option<u32> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The state and the parent follow the name, which is in parentheses and may hold any
        // character.
        stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
    };
    let pids = std::fs::read_dir("/proc").expect("there is a /proc");
    let pids = pids.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let mut children: Vec<u32> = pids.filter(|pid| parent_of(*pid) == Some(parent)).collect();
    children.sort_unstable();
    children
}

#[test]
fn a_search_for_people_shows_a_board_and_a_move() {
    let hex = ["hex", "--local", "--size", "3", "--rollouts", "100", "--seed", "7", "--moves", "a1 b2"];
    assert!(FARSIDE.printed(&hex).contains("\nsearched with connections: 16 simulations a leaf, "));
    let text = FARSIDE.printed(&[&hex[..], &["--plain"]].concat());
    assert!(text.contains("black plays") && text.contains("100 rollouts"), "{text}");
    assert!(text.contains("\nsearched by the rules alone: ") && text.ends_with("seed 7\n"), "{text}");
    assert!(text.contains("    a   b   c\n"), "{text}");
    assert_eq!(text.matches('B').count(), 1, "{text}");
    assert_eq!(text.matches('W').count(), 1, "{text}");
}

#[test]
fn processes_search_over_libfabric() {
    farside_testbed::needs!("fabric");
    for fabric in ["ofi:shm", "ofi:tcp"] {
        let text = FARSIDE.printed(&["hex", "-n", "2", "--fabric", fabric, "--rollouts", "1000", "--json"]);
        let found: Value = serde_json::from_str(&text).expect("the line is an object");
        assert_eq!((&found["processes"], &found["rollouts"]), (&2.into(), &1000.into()), "{fabric}: {found}");
    }
}

#[test]
fn the_machine_is_described() {
    let text = FARSIDE.printed(&["info", "--json"]);
    assert_eq!(text.lines().count(), 1, "{text}");
    let machine: Value = serde_json::from_str(&text).expect("the line is an object");
    assert!(machine["cpus_allowed_count"].as_u64() > Some(0), "{machine}");
    assert_eq!(machine["transports"][0]["name"], "shm");
    assert!(FARSIDE.printed(&["info"]).contains("CPUs allowed"));
}

#[test]
fn events_are_printed_when_they_are_asked_for() {
    let run = |filter: Option<&str>| {
        let mut command = FARSIDE.command(&["run", "-n", "2", "true"]);
        command.env_remove("FARSIDE_LOG");
        command.envs(filter.map(|filter| ("FARSIDE_LOG", filter)));
        let output = command.output().expect("the command can be started");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for filter in ["debug", "farside_launch=debug", "off,farside_launch=trace"] {
        let (_, text) = run(Some(filter));
        let events = text.lines().filter(|line| line.contains("DEBUG") && line.contains("farside_launch"));
        assert!(events.filter(|line| line.contains("process started")).count() == 2, "{filter}: {text}");
    }
    for filter in [None, Some("error"), Some("farside_mcts=trace")] {
        let (_, text) = run(filter);
        assert!(!text.contains("process started"), "{filter:?}: {text}");
    }
    let (status, text) = run(Some("farside=loud"));
    let names_both = text.contains("FARSIDE_LOG") && text.contains("farside=loud");
    assert!(text.starts_with("farside: error: ") && names_both, "{text}");
    assert_eq!(status, Some(2), "{text}");
}
