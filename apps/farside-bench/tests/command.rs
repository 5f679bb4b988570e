//! The command line of `farside-bench` from outside, as scripts see it.

use std::path::Path;

use farside_testbed::CommandLine;
use serde_json::Value;

const BENCH: CommandLine = CommandLine(env!("CARGO_BIN_EXE_farside-bench"));

#[test]
fn options_that_make_no_sense_are_refused() {
    BENCH.assert_refused(&["-n", "0"], 2, &["--operations", "0"]);
    BENCH.assert_refused(&["--list", "--fabric", "tcp"], 2, &["tcp", "shm", "ofi:PROVIDER", "sim:aries"]);
    BENCH.assert_refused(&["--list", "--fabric", "sim:myrinet"], 2, &["sim:myrinet", "sim:fdr"]);
    BENCH.assert_refused(&["oversubscribed", "--fabric", "sim:fdr"], 2, &["oversubscribed", "invoke-throughput"]);
    BENCH.assert_refused(&["mcts-scaling", "--fabric", "ofi:tcp"], 2, &["mcts-scaling", "invoke-latency"]);
    BENCH.assert_refused(&["irregular", "-s", "100"], 2, &["irregular", "--local-size", "queue and hash-map"]);
    BENCH.assert_refused(&["no-such-bench"], 2, &["no-such-bench", "invoke-latency"]);
    BENCH.assert_refused(&["--json", "/no-such-folder/rows", "mcts-scaling"], 1, &["/no-such-folder/rows"]);
}

#[test]
fn a_provider_that_this_machine_lacks_is_refused() {
    farside_testbed::needs!("fabric");
    BENCH.assert_refused(&["invoke-latency", "--fabric", "ofi:tpc"], 1, &["provider tpc", "farside info"]);
}

#[test]
fn the_benches_are_listed() {
    let text = BENCH.printed(&["--list"]);
    for name in [
        "invoke-throughput",
        "invoke-latency",
        "oversubscribed",
        "mcts-scaling",
        "memory",
        "expose",
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
    rows_with(bench, &["--fabric", fabric, "-n", operations])
}

fn rows_with(bench: &str, options: &[&str]) -> Vec<Value> {
    let name = format!("{bench}{}-{}.json", options.concat(), std::process::id()).replace('/', "-");
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let path = file.to_str().expect("a path of letters");
    let text = BENCH.printed(&[&[bench, "--quick", "--json", path], options].concat());
    let lines = std::fs::read_to_string(&file).expect("the rows were written");
    std::fs::remove_file(&file).expect("the file is ours");
    let rows: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect("a row is an object")).collect();
    // The table has the same rows below two lines of heading, and two more in a simulation.
    let heading = if text.starts_with("SIMULATED") { 4 } else { 2 };
    assert_eq!(text.lines().count(), rows.len() + heading, "{text}");
    rows
}

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
fn a_bench_of_two_processes_writes_rows() {
    let rows = rows("invoke-latency/call-return/8B", "shm", "20");
    let row = row(&rows, "call-return/8B", "rtt_ns");
    assert_is_row(row, "invoke-latency", row["limit_name"].as_str().expect("the row has a limit"));
}

#[test]
fn groups_that_cannot_join_are_named_with_the_reason() {
    let mut command = BENCH.command(&["multi-job", "--quick"]);
    let output = command.env("FARSIDE_TIMEOUT_S", "soon").output().expect("the command can be started");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    for word in ["process ", "of group ", "launched separately", "exit status: 1", "\"soon\" for FARSIDE_TIMEOUT_S"] {
        assert!(text.contains(word), "{word}: {text}");
    }
}

#[test]
fn a_measuring_process_is_not_started_by_hand() {
    let output = BENCH.output(&["bench-child", "invoke-latency"]);
    assert_eq!(output.status.code(), Some(1));
}

mod deep {
    use std::collections::BTreeSet;

    use super::*;

    /// A provider of libfabric that every machine has.
    const OVER_TCP: &str = "ofi:tcp";

    /// One run tells all of a simulation.
    #[track_caller]
    fn assert_is_simulated(row: &Value, limit_name: &str) {
        assert_eq!((&row["limit_name"], &row["runs"]), (&limit_name.into(), &1.into()), "{row}");
        assert!(row["ratio"].as_f64().is_some_and(|ratio| ratio > 0.0 && ratio < 0.5), "batches are faster: {row}");
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
    fn calls_between_two_processes_have_rows() {
        let rows = rows("invoke-throughput", "shm", "1000");
        for (metric, limit) in [("calls_per_s", "raw stream"), ("calls_per_s_against_write", "write")] {
            let mut of_metric = rows.iter().filter(|row| row["metric"] == metric).peekable();
            assert!(of_metric.peek().is_some(), "no {metric}: {rows:?}");
            of_metric.for_each(|row| assert_is_row(row, "invoke-throughput", limit));
        }
        assert!(rows.iter().any(|row| row["case"] == "trad/64B" && row["metric"] == "calls_per_s"), "{rows:?}");
    }

    #[test]
    fn programs_that_call_have_rows() {
        for (bench, metric) in [
            ("rpc-latency/connect/tcp", "connect_ns"),
            ("bulk/pipeline-4/mapped", "bytes_per_s"),
            ("kv/get/100B/16-in-flight", "bytes_per_s"),
        ] {
            let rows = rows_with(bench, &["--fabric", "shm", "-n", "10", "--no-peers"]);
            assert!(rows.iter().any(|row| row["metric"] == metric), "{bench}: {rows:?}");
        }
    }

    #[test]
    fn maps_of_any_size_have_rows() {
        for size in ["2", "100", "4096"] {
            for case in ["insert/one-sided/all", "find/batched", "find-miss/call/local"] {
                let bench = format!("hash-map/{case}");
                let rows = rows_with(&bench, &["--fabric", "shm", "-s", size]);
                assert!(rows.iter().any(|row| row["metric"] == "ns"), "{bench}, {size}: {rows:?}");
            }
        }
    }

    #[test]
    fn operations_of_containers_stand_beside_others() {
        for (bench, case, limit) in [
            ("hash-map", "load/find-miss", "half full"),
            ("hash-map", "batches/insert", "one by one"),
            ("hash-map", "promise/insert", "insert-only"),
            ("hash-map", "miss", "hits"),
            ("hash-map", "published/find", "published"),
            ("hash-map", "call/find", "calls"),
            ("hash-map", "from-nothing/insert/batched", "reserved"),
            ("queue", "contended/push/all", "fetch-adds on one word"),
        ] {
            let rows = rows(&format!("{bench}/{case}"), "shm", "300");
            assert_is_row(row(&rows, case, "ns"), bench, limit);
        }
        let rows = rows("hash-map/batches/find", "sim:aries", "100");
        assert_is_simulated(row(&rows, "batches/find/2x1x1/sim:aries", "ns"), "one by one");
        let rows = rows_with("hash-map/find/one-sided/all/16B", &["--fabric", "shm", "-n", "100"]);
        assert_is_row(row(&rows, "find/one-sided/all/16B", "ns"), "hash-map", "bare instructions");
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
    fn irregular_programs_stand_beside_loops_of_the_bench() {
        let rows = rows_with("irregular", &["--fabric", "shm", "-n", "2000", "--no-peers"]);
        for workload in ["histo", "ig"] {
            for (form, limit) in [("agp", "instructions on shared memory"), ("exchange", "buffers exchanged in step")] {
                for metric in ["items_per_s", "seconds"] {
                    assert_is_row(row(&rows, &format!("{workload}/{form}"), metric), "irregular", limit);
                    assert_is_row(row(&rows, &format!("{workload}/{form}/large"), metric), "irregular", limit);
                }
            }
        }
        for form in ["agp", "exchange"] {
            for workload in ["triangles", "bfs", "kmers"] {
                assert_is_row(row(&rows, &format!("{workload}/{form}"), "seconds"), "irregular", "one thread");
            }
            for workload in ["randperm", "toposort", "gups"] {
                assert!(row(&rows, &format!("{workload}/{form}"), "items_per_s")["limit"].is_null(), "{rows:?}");
            }
        }
    }

    /// One workload of each file of the programs, in both forms.
    #[test]
    fn irregular_programs_stand_beside_their_peers() {
        farside_testbed::needs!("peers");
        for case in ["histo/exchange", "triangles/agp", "kmers/exchange"] {
            let rows = rows(&format!("irregular/{case}"), "shm", "2000");
            let peers: BTreeSet<_> = rows.iter().filter_map(|row| row["peer"].as_str()).collect();
            assert_eq!(peers.len(), 2, "Open MPI and OpenSHMEM: {rows:?}");
        }
    }

    #[test]
    fn calls_over_libfabric_have_rows() {
        farside_testbed::needs!("fabric");
        let throughput = rows("invoke-throughput", OVER_TCP, "200");
        for mode in ["send", "write", "trad"] {
            for bytes in [8, 64, 256] {
                let row = row(&throughput, &format!("{mode}/{bytes}B/{OVER_TCP}"), "calls_per_s");
                let message_bytes = if mode == "trad" { 4096 } else { bytes + 8 };
                assert_is_row(row, "invoke-throughput", &format!("libfabric {message_bytes} B messages"));
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
        farside_testbed::needs!("fabric");
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
        farside_testbed::needs!("fabric");
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
            for case in ["joined", "one-job", "all-meet"].map(|case| format!("{case}{suffix}")) {
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
    fn a_simulated_bench_is_the_same_every_time() {
        let run = |number: u32| {
            let file =
                Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("simulated-{number}-{}.json", std::process::id()));
            let path = file.to_str().expect("a path of letters");
            let arguments = ["invoke-throughput", "--fabric", "sim:fdr", "-n", "300", "--seed", "5", "--json", path];
            let text = BENCH.printed(&arguments);
            assert!(text.starts_with("SIMULATED") && text.contains("seriema-published"), "{text}");
            let lines = std::fs::read_to_string(&file).expect("the rows were written");
            std::fs::remove_file(&file).expect("the file is ours");
            lines
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
    fn plots_are_drawn() {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("plots-{}", std::process::id()));
        let path = folder.to_str().expect("a path of letters");
        let output = BENCH.output(&["mcts-scaling", "--quick", "-n", "20", "--plots", path]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let svg =
            std::fs::read_to_string(folder.join("mcts-scaling-rollouts_per_s.svg")).expect("the plot was written");
        assert!(svg.starts_with("<svg ") && svg.contains("local"), "{svg}");
        std::fs::remove_dir_all(&folder).expect("the folder is ours");
    }
}
