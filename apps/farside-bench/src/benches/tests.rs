//! The table of benches as a contract: names, cases, and rows that repeat.

use std::collections::HashSet;

use super::*;
use crate::BenchError;
use crate::fabric::Fabric;
use crate::matrix::{self, Listing};
use crate::options::Options;
use crate::row::Row;

fn list(fabric: &Fabric) -> Vec<Listing> {
    matrix::list(BENCHES, fabric)
}

const OFI: [&str; 3] = ["ofi", "ofi:tcp", "ofi:verbs"];

fn fabric(text: &str) -> Fabric {
    text.parse().unwrap()
}

#[track_caller]
fn refused(names: &[&str], on: &str) -> String {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let refused = matrix::run(BENCHES, &names, Options::new(), &fabric(on), &mut |_| panic!("nothing is measured"));
    refused.unwrap_err().to_string()
}

#[test]
fn names_are_unique() {
    let names: HashSet<_> = BENCHES.iter().map(|bench| bench.name).collect();
    assert_eq!(names.len(), BENCHES.len());
    for fabric in ["shm", "ofi:tcp", "sim:fdr"].map(fabric) {
        for listing in list(&fabric) {
            let cases: HashSet<_> = listing.cases.iter().collect();
            assert_eq!(cases.len(), listing.cases.len(), "{} on {fabric}", listing.name);
        }
    }
}

#[test]
fn the_contract_is_kept_on_shared_memory() {
    let listed = list(&Fabric::Shm);
    let has = |bench: &str, case: &str| {
        listed.iter().any(|listing| listing.name == bench && listing.cases.iter().any(|name| name == case))
    };
    for mode in ["send", "write", "trad", "ovfl", "raw"] {
        for size in ["8B", "64B", "256B"] {
            assert!(has("invoke-throughput", &format!("{mode}/{size}")), "{mode}/{size}");
        }
    }
    for case in ["call-return/8B", "call-return/64B", "call-return/1KiB", "notify-executed"] {
        assert!(has("invoke-latency", case), "{case}");
    }
    for size in ["4KiB", "64KiB", "1MiB"] {
        for form in ["call-buffer", "call-buffer-put", "call-buffer-get", "call-buffer-unordered"] {
            assert!(has("invoke-latency", &format!("{form}/{size}")), "{form}/{size}");
        }
    }
    assert!(has("invoke-latency", "broadcast/8p"));
    for processes in [2, 4, 8] {
        for what in ["call-return", "barrier"] {
            assert!(has("oversubscribed", &format!("{what}/{processes}p")), "{what}/{processes}p");
        }
    }
    for case in ["sequential", "local", "1x1/trad", "2x1/trad", "1x2/trad", "1x1/ovfl", "2x1/ovfl", "1x2/ovfl"] {
        assert!(has("mcts-scaling", case), "{case}");
    }
    for case in ["2/shm", "16/shm", "estimate/1M/shm"] {
        assert!(has("footprint", case), "{case}");
    }
    for way in ["write", "write-2put", "read"] {
        for size in ["1B", "8B", "64B", "4KiB", "64KiB", "1MiB", "4MiB"] {
            assert!(has("pipe-latency", &format!("{way}/{size}")), "{way}/{size}");
        }
    }
    for size in ["64B", "64KiB"] {
        assert!(has("pipe-latency", &format!("stream/{size}")), "{size}");
    }
    for case in ["overlap", "no-overlap"] {
        assert!(has("stencil", case), "{case}");
    }
    for case in ["joined", "one-job"] {
        assert!(has("multi-job", case), "{case}");
    }
    for workload in ["histo", "ig", "randperm", "toposort", "triangles", "gups"] {
        for form in ["agp", "exchange"] {
            assert!(has("irregular", &format!("{workload}/{form}")), "{workload}/{form}");
        }
    }
    assert!(has("irregular", "bfs/exchange") && has("irregular", "kmers/exchange"));
}

#[test]
fn the_contract_is_kept_over_libfabric() {
    let listed = list(&fabric("ofi:tcp"));
    let has = |bench: &str, case: &str| {
        let case = format!("{case}/ofi:tcp");
        listed.iter().any(|listing| listing.name == bench && listing.cases.contains(&case))
    };
    for size in ["8B", "64B", "256B"] {
        for mode in ["send", "write", "trad", "ovfl"] {
            assert!(has("invoke-throughput", &format!("{mode}/{size}")), "{mode}/{size}");
        }
    }
    for size in ["8B", "64B", "1KiB"] {
        assert!(has("invoke-latency", &format!("call-return/{size}")), "{size}");
    }
    for size in ["8B", "64B", "4KiB", "64KiB", "1MiB"] {
        for mode in ["raw", "manual", "auto"] {
            assert!(has("transfer-throughput", &format!("{mode}/{size}")), "{mode}/{size}");
        }
    }
    for size in ["4KiB", "64KiB", "1MiB"] {
        assert!(has("transfer-throughput", &format!("put/{size}")), "put/{size}");
    }
    assert!(has("oversubscribed", "idle/2p"));
    assert!(has("multi-job", "joined") && has("multi-job", "one-job"));
}

#[test]
fn a_child_finds_every_case() {
    for fabric in OFI.into_iter().chain(["shm"]).map(fabric) {
        for listing in list(&fabric) {
            for case in &listing.cases {
                assert!(fabric == Fabric::Shm || case.ends_with(&format!("/{fabric}")), "{case}");
                let (_, cases) = matrix::find(BENCHES, listing.name, &Fabric::of_job(case)).unwrap();
                assert_eq!(cases.iter().filter(|found| found.name == *case).count(), 1, "{case}");
            }
        }
    }
}

#[test]
fn an_unknown_name_is_refused_before_anything_runs() {
    for (names, on) in [
        (["mcts-scaling", "no-such-bench"], "shm"),
        (["invoke-latency", "mcts-scaling"], "ofi:tcp"),
        (["mcts-scaling", "oversubscribed"], "sim:100gbe"),
    ] {
        let text = refused(&names, on);
        assert!([names[1], on, "invoke-throughput"].iter().all(|word| text.contains(word)), "{text}");
    }
}

#[test]
fn an_unknown_provider_is_refused() {
    farside_testbed::needs!("fabric");
    let text = refused(&["invoke-latency"], "ofi:no_such_provider");
    assert!(text.contains("no_such_provider") && text.contains("farside info"), "{text}");
}

#[test]
fn a_child_checks_its_arguments() {
    let child = |arguments: &[&str]| {
        matrix::child(BENCHES, &arguments.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>())
    };
    assert!(matches!(child(&[]), Err(BenchError::ChildArguments { .. })));
    assert!(matches!(
        child(&["invoke-latency", "x", "y", "perhaps", "0", "0", "0"]),
        Err(BenchError::ChildArguments { .. })
    ));
    assert!(matches!(child(&["x", "x", "y", "true", "0", "0", "0"]), Err(BenchError::UnknownBench { .. })));
    let unknown = child(&["invoke-latency", "x", "y", "true", "0", "0", "0"]);
    assert!(matches!(unknown, Err(BenchError::UnknownCase { .. })));
    assert!(matches!(
        child(&["mcts-scaling", "local", "y", "true", "0", "0", "0"]),
        Err(BenchError::ChildArguments { .. })
    ));
    assert!(matches!(
        child(&["mcts-scaling", "local/ofi", "y", "true", "0", "0", "0"]),
        Err(BenchError::UnknownBench { .. })
    ));
}

fn simulated(name: &str, network: &str, options: Options) -> Result<Vec<Row>, BenchError> {
    let mut rows = Vec::new();
    matrix::run(BENCHES, &[name.to_owned()], options, &fabric(network), &mut |row| {
        rows.push(row.clone());
        Ok(())
    })?;
    Ok(rows)
}

fn rows_of(bench: &str, network: &str, seed: u64) -> Vec<Row> {
    simulated(bench, network, Options::new().operations(Some(300)).seed(seed)).unwrap()
}

fn rows(network: &str, seed: u64) -> Vec<Row> {
    rows_of("invoke-throughput", network, seed)
}

#[test]
fn the_same_seed_gives_the_same_rows() {
    let first = rows("sim:fdr", 7);
    assert_eq!(rows("sim:fdr", 7), first);
    assert!(first.iter().all(|row| row.case.ends_with("/sim:fdr")), "{first:?}");
}

#[test]
fn published_figures_are_shown_too() {
    let rows = rows("sim:fdr", 1);
    for (case, megabytes) in [("send/8B", 12.07), ("write/64B", 301.47), ("trad/256B", 5318.89), ("ovfl/64B", 283.15)] {
        let case = format!("{case}/sim:fdr");
        let of = |peer: Option<&str>| {
            let found = rows
                .iter()
                .find(|row| row.case == case && row.metric == "payload_mb_per_s" && row.peer.as_deref() == peer);
            found.unwrap_or_else(|| panic!("{case} of {peer:?}"))
        };
        assert_eq!(of(Some("seriema-published")).value, megabytes);
        let simulated = of(None);
        assert!(simulated.ratio.is_some_and(|ratio| ratio > 0.0 && ratio <= 1.0), "{simulated:?}");
    }
}

#[test]
fn rows_are_chosen_by_how_their_cases_begin() {
    let options = Options::new().quick(true).operations(Some(50));
    let chosen = simulated("invoke-throughput/send", "sim:fdr", options).unwrap();
    assert!(!chosen.is_empty() && chosen.iter().all(|row| row.case.starts_with("send")), "{chosen:?}");
    let refused = simulated("invoke-throughput/no-such", "sim:fdr", options).unwrap_err().to_string();
    assert!(refused.contains("no-such") && refused.contains("send/8B"), "{refused}");
}

#[test]
fn sizes_are_spelled_with_the_largest_unit_that_is_whole() {
    let names = [8, 512, 1023, 1024, 4096, 65536, 1 << 20, 16 << 20].map(size_name);
    assert_eq!(names, ["8B", "512B", "1023B", "1KiB", "4KiB", "64KiB", "1MiB", "16MiB"]);
}

mod deep {
    use super::*;

    #[test]
    fn signalling_by_itself_is_as_fast_as_by_hand() {
        let rows = rows_of("transfer-throughput", "sim:fdr", 3);
        let rate = |case: &str| {
            let found = rows.iter().find(|row| row.case == format!("{case}/sim:fdr") && row.peer.is_none());
            found.unwrap_or_else(|| panic!("{case}")).value
        };
        for size in ["8B", "64B", "4KiB", "64KiB", "1MiB"] {
            // Virtual time: the same on every machine.
            let (manual, auto) = (rate(&format!("manual/{size}")), rate(&format!("auto/{size}")));
            assert!(auto > 0.9 * manual, "{size}: {auto} of {manual}");
        }
        let of_seriema = rows.iter().find(|row| row.case == "auto/4KiB/sim:fdr" && row.peer.is_some());
        assert_eq!(of_seriema.map(|row| (row.value * 4096.0).round()), Some(5464e6));
    }

    #[test]
    fn a_search_scales_to_64_workers() {
        let options = Options::new().operations(Some(10)).seed(1);
        let run = |name: &str| {
            let rows = simulated(name, "sim:fdr", options).unwrap();
            let is_rate = |row: &&Row| row.metric == "rollouts_per_s" && row.case.ends_with("/ovfl/owner/sim:fdr");
            rows.iter().filter(is_rate).map(|row| (row.case.clone(), row.value, row.limit)).collect::<Vec<_>>()
        };
        let rates = run("mcts-scaling");
        assert_eq!(rates.first().map(|(case, ..)| &**case), Some("1x1x1/ovfl/owner/sim:fdr"));
        assert_eq!(rates.last().map(|(case, ..)| &**case), Some("4x2x8/ovfl/owner/sim:fdr"));
        assert!(rates.iter().all(|(_, rate, _)| *rate > 0.0));
        // One case alone has the same limit: the rate of one worker is then simulated for it.
        assert_eq!(run("mcts-scaling/1x1x8"), rates[1..2], "the same seed gives the same search");
    }

    #[test]
    fn nothing_is_published_of_other_networks() {
        assert!(rows("sim:aries", 1).iter().all(|row| row.peer.is_none()));
    }
}
