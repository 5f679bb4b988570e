//! The command line from outside, as scripts see it.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

fn farside(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_farside"));
    // Loopback is always there, and nothing leaves the machine.
    command
        .args(arguments)
        .env_remove("FARSIDE_FABRIC")
        .env("FARSIDE_ADDRESS", "127.0.0.1")
        .output()
        .expect("the command can be started")
}

/// The standard output of a command that succeeds and has nothing to complain about.
#[track_caller]
fn printed(arguments: &[&str]) -> String {
    let output = farside(arguments);
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && complaints.is_empty(), "{arguments:?}: {}: {complaints}", output.status);
    String::from_utf8(output.stdout).expect("the output is text")
}

/// Asserts that a command is refused with this status, prints no result, and says why in words that contain `words`.
#[track_caller]
fn assert_refused(arguments: &[&str], status: i32, words: &[&str]) {
    let output = farside(arguments);
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{arguments:?}: {complaints}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    assert!(complaints.starts_with("farside: error: "), "{arguments:?}: {complaints}");
    for word in words {
        assert!(complaints.contains(word), "{arguments:?} should say {word:?}: {complaints}");
    }
}

#[test]
fn boards_that_cannot_be_are_refused() {
    assert_refused(&["hex", "--local", "--size", "1"], 2, &["size 1", "2 to 16"]);
    assert_refused(&["hex", "--local", "--size", "17"], 2, &["size 17", "2 to 16"]);
    assert_refused(&["hex", "--local", "--size", "-1"], 2, &["-1"]);
}

#[test]
fn illegal_moves_are_named() {
    let hex = ["hex", "--local", "--size", "5", "--moves"];
    let with = |moves| [&hex[..], &[moves]].concat();
    assert_refused(&with("a1 b2 a1"), 2, &["move 3, a1", "occupied"]);
    assert_refused(&with("a1 f1"), 2, &["move 2, f1", "off the board", "e5"]);
    assert_refused(&with("a1 pass 7c"), 2, &["move 3", "7c", "such as c4, or pass"]);
}

#[test]
fn a_game_that_is_over_is_not_searched() {
    let hex = ["hex", "--local", "--size", "2", "--moves"];
    let with = |moves| [&hex[..], &[moves]].concat();
    assert_refused(&with("a1 b1 a2"), 2, &["black has won", "leave out"]);
    assert_refused(&with("pass a1 pass b1"), 2, &["white has won"]);
    assert_refused(&with("a1 b1 a2 b2"), 2, &["move 4, b2", "black has won"]);
}

#[test]
fn budgets_and_numbers_of_nothing_are_refused() {
    assert_refused(&["hex", "--local", "--rollouts", "0"], 2, &["zero", "at least one rollout"]);
    assert_refused(&["hex", "--local", "--seconds", "0"], 2, &["above 0"]);
    assert_refused(&["hex", "--local", "--rollouts", "9", "--seconds", "1"], 2, &["--rollouts", "--seconds"]);
    assert_refused(&["hex", "-n", "0"], 2, &["--processes", "at least one"]);
    assert_refused(&["hex", "-t", "0"], 2, &["--threads", "at least one"]);
    assert_refused(&["hex", "--local", "-n", "3"], 2, &["3", "leave out -n"]);
    assert_refused(&["run", "-n", "0", "true"], 2, &["0 processes", "at least one"]);
    assert_refused(&["run", "-n", "1", "true", ":", "-n", "0", "true"], 2, &["at least one"]);
    assert_refused(&["run", "-n", "1", "-t", "0", "true"], 2, &["at least one worker thread"]);
    assert_refused(&["bench", "-n", "0"], 2, &["--operations", "at least one"]);
}

#[test]
fn fabrics_that_are_not_there_are_refused() {
    assert_refused(&["hex", "--local", "--fabric", "sim:fdr"], 2, &["sim:fdr", "shm", "ofi:PROVIDER"]);
    assert_refused(&["run", "-n", "1", "--fabric", "verbs", "true"], 2, &["verbs", "shm"]);
    assert_refused(&["bench", "--list", "--fabric", "tcp"], 2, &["tcp", "shm", "ofi:PROVIDER", "sim:aries"]);
    assert_refused(&["bench", "--list", "--fabric", "sim:myrinet"], 2, &["sim:myrinet", "sim:fdr"]);
    assert_refused(&["bench", "oversubscribed", "--fabric", "sim:fdr"], 2, &["oversubscribed", "invoke-throughput"]);
    assert_refused(&["bench", "mcts-scaling", "--fabric", "ofi:tcp"], 2, &["mcts-scaling", "invoke-latency"]);
    assert_refused(&["bench", "invoke-latency", "--fabric", "ofi:tpc"], 1, &["provider tpc", "farside info"]);
}

#[test]
fn what_is_missing_is_said() {
    assert_refused(&["run", "-n", "2"], 2, &["PROGRAM"]);
    assert_refused(&["run", "true"], 2, &["-n"]);
    assert_refused(&["run", "-n", "2", "true", ":", "-n", "1"], 2, &["part 2", "no program"]);
    assert_refused(&["run", "-n", "1", "./no-such-program"], 127, &["./no-such-program"]);
    assert_refused(&["bench", "no-such-bench"], 2, &["no-such-bench", "invoke-latency"]);
    assert_refused(&["conquer"], 2, &["conquer"]);
    assert_refused(&["bench", "--json", "/no-such-folder/rows", "mcts-scaling"], 1, &["/no-such-folder/rows"]);
}

#[test]
fn a_job_ends_with_the_status_of_its_process() {
    assert_refused(&["run", "-n", "2", "sh", "-c", "exit 7"], 7, &["status 7"]);
    assert_refused(&["run", "-n", "1", "sh", "-c", "kill -9 $$"], 137, &["signal 9"]);
    assert_refused(&["run", "-n", "1", "--timeout", "0.1", "sleep", "60"], 124, &["time limit"]);
}

#[test]
fn a_search_prints_one_line_and_the_same_for_the_same_seed() {
    let arguments =
        ["hex", "--local", "--json", "--size", "5", "--rollouts", "300", "--seed", "3", "--moves", "C3 pass"];
    let [first, second] = [(); 2].map(|()| {
        let text = printed(&arguments);
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
fn connections_solve_what_the_rules_alone_do_not() {
    let search = ["hex", "--local", "--json", "--size", "5", "--rollouts", "2000"];
    let win_rate = |more: &[&str]| {
        let found: Value = serde_json::from_str(&printed(&[&search, more].concat())).expect("the line is an object");
        found["win_rate"].as_f64()
    };
    assert!(win_rate(&[]) < Some(1.0));
    assert_eq!(win_rate(&["--connections"]), Some(1.0));
}

#[test]
fn a_search_on_a_job_prints_one_line() {
    for (processes, threads) in [("2", "1"), ("1", "2")] {
        let text = printed(&["hex", "-n", processes, "-t", threads, "--json", "--size", "5", "--rollouts", "3000"]);
        assert_eq!(text.lines().count(), 1, "{text}");
        let found: Value = serde_json::from_str(&text).expect("the line is an object");
        assert_eq!(found["rollouts"], 3000, "{text}");
        assert_eq!((found["processes"].to_string(), found["threads"].to_string()), (processes.into(), threads.into()));
        assert!(found["messages_per_rollout"].as_f64() > Some(0.0), "{text}");
    }
}

/// Starts a long search on three processes. Returns the launcher and the processes, in their order.
fn start_search(mut command: Command) -> (Child, Vec<u32>) {
    command.args(["hex", "-n", "3", "--seconds", "60"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let launcher = command.spawn().expect("the command can be started");
    let mut processes = Vec::new();
    wait_until("three processes run", || {
        processes = children(launcher.id());
        processes.len() == 3
    });
    // Long enough for the search to be under way; if not, what happens to it is noticed all the same.
    thread::sleep(Duration::from_millis(300));
    (launcher, processes)
}

fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it takes too long until {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

fn send_signal(signal: &str, pid: u32) {
    let sent = Command::new("kill").args([signal, &pid.to_string()]).status().expect("there is a `kill`");
    assert!(sent.success());
}

#[test]
fn a_search_that_loses_a_process_fails_and_names_it() {
    for doomed in 0..3 {
        let (launcher, processes) = start_search(Command::new(env!("CARGO_BIN_EXE_farside")));
        send_signal("-KILL", processes[doomed]);
        let output = launcher.wait_with_output().expect("the command ends");
        let complaints = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(128 + 9), "{complaints}");
        assert!(output.stdout.is_empty() && complaints.contains(&format!("process {doomed} failed")), "{complaints}");
        assert_eq!(complaints.matches("farside: error").count(), 1, "{complaints}");
    }
}

#[test]
fn an_interrupt_ends_everything() {
    // Who runs this may have chosen to ignore interrupts, which would be inherited.
    let mut command = Command::new("env");
    command.args(["--default-signal=INT", env!("CARGO_BIN_EXE_farside")]);
    let (launcher, processes) = start_search(command);
    send_signal("-INT", launcher.id());
    let output = launcher.wait_with_output().expect("the command ends");
    assert_eq!(output.status.signal(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
    wait_until("all have ended", || !processes.iter().any(|pid| is_running(*pid)));
}

/// Whether a process is there and has not ended.
fn is_running(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with(['Z', 'X']))
}

/// The children of a process, oldest first.
fn children(parent: u32) -> Vec<u32> {
    let parent_of = |pid: u32| -> Option<u32> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The state and the parent stand behind the name, which is in parentheses and may hold anything.
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
    let text = printed(&["hex", "--local", "--size", "3", "--rollouts", "100", "--moves", "a1 b2"]);
    assert!(text.contains("black plays") && text.contains("100 rollouts"), "{text}");
    assert!(text.contains("    a   b   c\n"), "{text}");
    assert_eq!(text.matches('B').count(), 1, "{text}");
    assert_eq!(text.matches('W').count(), 1, "{text}");
}

#[test]
fn the_benches_are_listed() {
    let text = printed(&["bench", "--list"]);
    for name in [
        "invoke-throughput",
        "invoke-latency",
        "oversubscribed",
        "mcts-scaling",
        "memory",
        "multi-job",
        "copy",
        "local-remote/8B",
        "remote-remote/16MiB",
        "notified-put/56B",
        "overlap/pipes",
        "8KiB/64/32p",
        "allocate/64B/first",
        "trad/8B",
        "call-buffer/1MiB",
    ] {
        assert!(text.contains(name), "{name}: {text}");
    }
}

/// Runs a bench with few operations and returns its rows.
fn rows(bench: &str, fabric: &str, operations: &str) -> Vec<Value> {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{bench}-{fabric}.json"));
    let path = file.to_str().expect("a path of letters");
    let text = printed(&["bench", bench, "--fabric", fabric, "--quick", "-n", operations, "--json", path]);
    let lines = std::fs::read_to_string(&file).expect("the rows were written");
    let rows: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect("a row is an object")).collect();
    // The table has the same rows under two lines of heading.
    assert_eq!(text.lines().count(), rows.len() + 2, "{text}");
    rows
}

/// libfabric, where any machine has it.
const OVER_TCP: &str = "ofi:tcp";

#[track_caller]
fn row<'r>(rows: &'r [Value], case: &str, metric: &str) -> &'r Value {
    let found = rows.iter().find(|row| row["case"] == case && row["metric"] == metric);
    found.unwrap_or_else(|| panic!("{case} {metric} is not among {rows:?}"))
}

#[track_caller]
fn assert_is_row(row: &Value, bench: &str, limit_name: &str) {
    assert_eq!((&row["bench"], &row["limit_name"]), (&bench.into(), &limit_name.into()), "{row}");
    let number = |key: &str| row[key].as_f64().unwrap_or_else(|| panic!("{key} is no number: {row}"));
    assert!(number("min") <= number("value") && number("value") <= number("max"), "{row}");
    assert!((number("ratio") - number("value") / number("limit")).abs() <= 1e-9 * number("ratio"), "{row}");
    assert!(number("runs") >= 3.0 && number("value") > 0.0, "{row}");
    assert!(row["case"].is_string() && row["metric"].is_string() && row["unit"].is_string(), "{row}");
}

#[test]
fn a_bench_in_this_process_writes_rows() {
    let rows = rows("mcts-scaling", "shm", "20");
    let rates: Vec<_> = rows.iter().filter(|row| row["metric"] == "rollouts_per_s").collect();
    rates.iter().for_each(|row| assert_is_row(row, "mcts-scaling", "sequential program"));
    for case in ["sequential", "local", "2x1/trad"] {
        assert!(rates.iter().any(|row| row["case"] == case), "{case}: {rows:?}");
    }
}

#[test]
fn a_bench_of_two_processes_writes_rows() {
    let rows = rows("invoke-throughput", "shm", "1000");
    for (metric, limit) in [("calls_per_s", "raw stream"), ("calls_per_s_in_turns", "write")] {
        let mut of_metric = rows.iter().filter(|row| row["metric"] == metric).peekable();
        assert!(of_metric.peek().is_some(), "no {metric}: {rows:?}");
        of_metric.for_each(|row| assert_is_row(row, "invoke-throughput", limit));
    }
    assert!(rows.iter().any(|row| row["case"] == "trad/64B" && row["metric"] == "calls_per_s"), "{rows:?}");
}

#[test]
fn memory_by_global_addresses_stands_beside_what_is_below() {
    let rows = rows("copy", "shm", "20");
    let limits = [
        ("local-remote/8B", "copy into the mapping"),
        ("remote-local/1MiB", "copy into the mapping"),
        ("start-put/64B", "a put that waits"),
        ("fetch-add/4B", "the processor's own"),
        ("notified-put/56B", "one-line ping-pong / 2"),
        ("private-get/4KiB", "process_vm_readv"),
        ("private-put/4KiB", "process_vm_writev to oneself"),
    ];
    for (case, limit) in limits {
        assert_is_row(row(&rows, case, "ns"), "copy", limit);
    }
    assert_is_row(row(&rows, "remote-remote/1MiB", "bytes_per_s"), "copy", "memcpy");
    assert!(rows.iter().any(|row| row["case"] == "translate"), "{rows:?}");
    for metric in ["own_put_ns", "put_ns", "start_put_ns", "call_return_ns"] {
        assert_is_row(row(&rows, "checked", metric), "copy", "unchecked");
    }
}

#[test]
fn processes_search_over_libfabric() {
    if farside_testbed::is_left_out("fabric") {
        return;
    }
    for fabric in ["ofi:shm", OVER_TCP] {
        let text = printed(&["hex", "-n", "2", "--fabric", fabric, "--seconds", "1", "--json"]);
        let found: Value = serde_json::from_str(&text).expect("the line is an object");
        assert_eq!(found["processes"], 2, "{fabric}: {found}");
        assert!(found["messages_per_rollout"].as_f64() > Some(0.0), "{fabric}: {found}");
    }
}

#[test]
fn calls_over_libfabric_have_rows() {
    if farside_testbed::is_left_out("fabric") {
        return;
    }
    let throughput = rows("invoke-throughput", OVER_TCP, "200");
    for (mode, sizes) in [("send", [8, 64, 256]), ("write", [8, 64, 256]), ("trad", [8, 64, 256])] {
        for bytes in sizes {
            let row = row(&throughput, &format!("{mode}/{bytes}B/{OVER_TCP}"), "calls_per_s");
            assert_is_row(row, "invoke-throughput", &format!("libfabric 4KiB puts / {} B a record", bytes + 8));
        }
    }
    let latency = rows("invoke-latency", OVER_TCP, "50");
    for size in ["8B", "64B", "1KiB"] {
        let row = row(&latency, &format!("call-return/{size}/{OVER_TCP}"), "rtt_ns");
        assert_is_row(row, "invoke-latency", "libfabric ping-pong x2");
    }
}

#[test]
fn transfers_over_libfabric_have_rows() {
    if farside_testbed::is_left_out("fabric") {
        return;
    }
    let rows = rows("transfer-throughput", OVER_TCP, "70");
    for size in ["4KiB", "64KiB", "1MiB"] {
        let put = row(&rows, &format!("put/{size}/{OVER_TCP}"), "msgs_per_s");
        assert_is_row(put, "transfer-throughput", "libfabric puts");
    }
    for size in ["8B", "64B", "4KiB", "64KiB", "1MiB"] {
        let raw = row(&rows, &format!("raw/{size}/{OVER_TCP}"), "msgs_per_s");
        assert!(raw["limit"].is_null() && raw["value"].as_f64() > Some(0.0) && raw["peer"] == "libfabric", "{raw}");
        let manual = row(&rows, &format!("manual/{size}/{OVER_TCP}"), "msgs_per_s");
        assert_is_row(manual, "transfer-throughput", "libfabric puts");
        let auto = row(&rows, &format!("auto/{size}/{OVER_TCP}"), "msgs_per_s");
        assert_is_row(auto, "transfer-throughput", "manual signalling");
    }
}

#[test]
fn transfers_on_shared_memory_have_rows() {
    let rows = rows("transfer-throughput", "shm", "100");
    for size in ["8B", "64B", "4KiB", "64KiB", "1MiB"] {
        let manual = row(&rows, &format!("manual/{size}"), "msgs_per_s");
        assert_is_row(manual, "transfer-throughput", "copies");
        let auto = row(&rows, &format!("auto/{size}"), "msgs_per_s");
        assert_is_row(auto, "transfer-throughput", "manual signalling");
    }
}

#[test]
fn waiting_over_libfabric_has_a_row() {
    if farside_testbed::is_left_out("fabric") {
        return;
    }
    let rows = rows("oversubscribed", OVER_TCP, "1");
    let idle = row(&rows, &format!("idle/2p/{OVER_TCP}"), "cpu_fraction");
    assert!(idle["value"].as_f64() > Some(0.0) && idle["runs"].as_u64() >= Some(3), "{idle}");
}

#[test]
fn groups_that_join_have_rows() {
    for (fabric, suffix) in [("shm", String::new()), (OVER_TCP, format!("/{OVER_TCP}"))] {
        if fabric == OVER_TCP && farside_testbed::is_left_out("fabric") {
            continue;
        }
        let rows = rows("multi-job", fabric, "3");
        for case in ["joined", "one-job", "everybody-meets"].map(|case| format!("{case}{suffix}")) {
            for metric in ["bytes_per_process", "data_bytes", "data_bytes_max"] {
                let row = row(&rows, &case, metric);
                assert_is_row(row, "multi-job", "before the first call");
                assert_eq!(row["unit"], "B");
            }
            let reported = row(&rows, &case, "reported_bytes");
            assert!(reported["value"].as_f64() > Some(4096.0), "{reported}");
        }
        let published: Vec<_> = rows.iter().filter_map(|row| row["peer"].as_str()).collect();
        assert_eq!(published.len(), if fabric == "shm" { 3 } else { 0 }, "{published:?}");
        assert!(published.iter().all(|peer| peer.starts_with("acp-")), "{published:?}");
    }
}

#[test]
fn groups_that_cannot_join_are_named_with_the_reason() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_farside"));
    command.args(["bench", "multi-job", "--quick"]).env("FARSIDE_TIMEOUT_S", "soon").env_remove("FARSIDE_FABRIC");
    let output = command.output().expect("the command can be started");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    for word in ["process ", "of group ", "launched separately", "exit status: 1", "FARSIDE_TIMEOUT_S=\"soon\""] {
        assert!(text.contains(word), "{word}: {text}");
    }
}

#[test]
fn a_simulated_bench_is_the_same_every_time() {
    let run = |number: u32| {
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("simulated-{number}.json"));
        let path = file.to_str().expect("a path of letters");
        let arguments =
            ["bench", "invoke-throughput", "--fabric", "sim:fdr", "-n", "300", "--seed", "5", "--json", path];
        let text = printed(&arguments);
        assert!(text.starts_with("SIMULATED") && text.contains("seriema-published"), "{text}");
        std::fs::read_to_string(&file).expect("the rows were written")
    };
    let lines = run(1);
    assert_eq!(run(2), lines);
    for line in lines.lines() {
        let row: Value = serde_json::from_str(line).expect("a row is an object");
        assert!(row["case"].as_str().is_some_and(|case| case.ends_with("/sim:fdr")), "{row}");
        assert!(row["peer"].is_null() || row["peer"] == "seriema-published", "{row}");
        assert_is_row(&row, "invoke-throughput", "simulated port");
    }
}

#[test]
fn a_measuring_process_is_not_started_by_hand() {
    let output = farside(&[farside_bench::CHILD_COMMAND, "invoke-latency"]);
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn the_machine_is_described() {
    let text = printed(&["info", "--json"]);
    assert_eq!(text.lines().count(), 1, "{text}");
    let machine: Value = serde_json::from_str(&text).expect("the line is an object");
    assert!(machine["cpus_allowed_count"].as_u64() > Some(0), "{machine}");
    assert_eq!(machine["transports"][0]["name"], "shm");
    assert!(printed(&["info"]).contains("CPUs allowed"));
}

#[cfg(feature = "plots")]
#[test]
fn plots_are_drawn() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("plots");
    let path = folder.to_str().expect("a path of letters");
    let output = farside(&["bench", "mcts-scaling", "--quick", "-n", "20", "--plots", path]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let svg = std::fs::read_to_string(folder.join("mcts-scaling-rollouts_per_s.svg")).expect("the plot was written");
    assert!(svg.starts_with("<svg ") && svg.contains("local"), "{svg}");
}

#[cfg(not(feature = "plots"))]
#[test]
fn plots_that_cannot_be_drawn_are_refused_at_once() {
    assert_refused(&["bench", "--plots", "plots"], 2, &["without plots", "--features plots"]);
}
