//! The benches of shared memory: listed, run, and taken part in.

use std::io;
use std::path::Path;

use crate::benches::BENCHES;
use crate::case::Case;
use crate::error::BenchError;
use crate::name::Name;
use crate::options::Options;
use crate::over_ofi;
use crate::row::Row;

/// A bench, as it is listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listing {
    /// Its name.
    pub(crate) name: &'static str,
    /// What it measures, in one line.
    pub(crate) about: &'static str,
    /// The names of its cases.
    pub(crate) cases: Vec<String>,
}

/// All benches.
#[must_use]
pub(crate) fn list() -> Vec<Listing> {
    let cases = |bench: &Bench| (bench.cases)().into_iter().map(|case| case.name).collect();
    BENCHES.iter().map(|bench| Listing { name: bench.name, about: bench.about, cases: cases(bench) }).collect()
}

/// Runs the benches of these names, or all when there are none, and hands every row to `on_row` as soon as it is there. Of a bench a part can
/// be named: `copy/private-put` is those cases of `copy` whose names begin with `private-put`.
///
/// *Cost*: minutes for each bench, or less than one if the options say so. Nothing else should run meanwhile.
///
/// # Errors
/// - [`BenchError::UnknownBench`] or [`BenchError::NoSuchCase`] before anything is measured.
/// - [`BenchError::Row`] with what `on_row` said; nothing is measured after that.
/// - Whatever keeps a case from being measured.
pub(crate) fn run(
    names: &[String],
    options: Options,
    on_row: &mut dyn FnMut(&Row) -> io::Result<()>,
) -> Result<(), BenchError> {
    let mut chosen = Vec::new();
    for name in names.iter().map(|name| Name::of(name)) {
        let bench = find_bench(name.bench)?;
        chosen.push((bench.name, name.choose((bench.cases)())?));
    }
    if chosen.is_empty() {
        chosen.extend(BENCHES.iter().map(|bench| (bench.name, (bench.cases)())));
    }
    for (bench, cases) in chosen {
        measure_all(bench, &cases, options, on_row)?;
    }
    Ok(())
}

/// Measures these cases of a bench, one after the other.
pub(crate) fn measure_all(
    bench: &str,
    cases: &[Case],
    options: Options,
    on_row: &mut dyn FnMut(&Row) -> io::Result<()>,
) -> Result<(), BenchError> {
    let mut rows = Vec::new();
    for case in cases {
        for metric in case.measure(bench, options, &rows)? {
            let row = Row::new(bench, &case.name, &metric).ok_or_else(|| BenchError::NothingMeasured {
                bench: bench.into(),
                case: case.name.clone(),
                metric: metric.name.clone(),
            })?;
            on_row(&row).map_err(BenchError::Row)?;
            rows.push(row);
        }
    }
    Ok(())
}

/// Takes part in a measurement, in a process that [`run`] has started with these arguments behind [`CHILD_COMMAND`](crate::CHILD_COMMAND).
///
/// # Errors
/// [`BenchError::ChildArguments`], [`BenchError::UnknownBench`] or [`BenchError::UnknownCase`] for arguments that `run`
/// does not give; whatever goes wrong in the measurement. The process that started this one learns of it by itself.
pub(crate) fn child(arguments: &[String]) -> Result<(), BenchError> {
    let [bench, case, results, quick, operations] = arguments else {
        return Err(BenchError::ChildArguments { what: "there should be five" });
    };
    let options = Options::from_arguments(quick, operations);
    let options = options.ok_or(BenchError::ChildArguments { what: "the options are not readable" })?;
    let cases = match over_ofi::cases_with(bench, case)? {
        Some(cases) => cases,
        None => (find_bench(bench)?.cases)(),
    };
    let found = cases.iter().find(|found| found.name == *case);
    let found = found.ok_or_else(|| BenchError::UnknownCase { bench: bench.clone(), case: case.clone() })?;
    found.take_part(bench, options, Path::new(results))
}

/// A bench.
#[derive(Debug)]
pub(crate) struct Bench {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) cases: fn() -> Vec<Case>,
}

fn find_bench(name: &str) -> Result<&'static Bench, BenchError> {
    let known = || BENCHES.iter().map(|bench| bench.name).collect::<Vec<_>>().join(", ");
    let found = BENCHES.iter().find(|bench| bench.name == name);
    found.ok_or_else(|| BenchError::UnknownBench { name: name.into(), known: known() })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_are_unique() {
        let mut benches = HashSet::new();
        for listing in list() {
            assert!(benches.insert(listing.name), "{}", listing.name);
            let cases: HashSet<_> = listing.cases.iter().collect();
            assert_eq!(cases.len(), listing.cases.len(), "{}", listing.name);
            assert!(!cases.is_empty(), "{}", listing.name);
        }
    }

    #[test]
    fn the_contract_is_kept() {
        let listed = list();
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
            for form in ["call-buffer", "call-buffer-put", "call-buffer-get", "call-buffer-aside"] {
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
    }

    #[test]
    fn an_unknown_name_is_refused_before_anything_runs() {
        let names = ["mcts-scaling".to_owned(), "no-such-bench".to_owned()];
        let error = run(&names, Options::new(), &mut |_| panic!("nothing is measured")).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("no-such-bench") && text.contains("invoke-latency"), "{text}");
    }

    #[test]
    fn a_child_checks_its_arguments() {
        let child = |arguments: &[&str]| child(&arguments.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>());
        assert!(matches!(child(&[]), Err(BenchError::ChildArguments { .. })));
        assert!(matches!(child(&["invoke-latency", "x", "y", "perhaps", "0"]), Err(BenchError::ChildArguments { .. })));
        assert!(matches!(child(&["x", "x", "y", "true", "0"]), Err(BenchError::UnknownBench { .. })));
        assert!(matches!(child(&["invoke-latency", "x", "y", "true", "0"]), Err(BenchError::UnknownCase { .. })));
        assert!(matches!(child(&["mcts-scaling", "local", "y", "true", "0"]), Err(BenchError::ChildArguments { .. })));
    }
}
