//! Benches over libfabric: jobs whose processes reach each other by it, also on one machine, beside libfabric alone.

use std::fmt;
use std::io;

use farside::job::FabricChoice;
use farside_fabric::ofi::raw::RawEnd;

use crate::benches::{
    copy, footprint, invoke_latency, invoke_throughput, multi_job, oversubscribed, pipe_latency, pipe_scaling, stencil,
    transfer_throughput,
};
use crate::case::Case;
use crate::matrix::{Listing, measure_all};
use crate::name::Name;
use crate::row::Row;
use crate::{BenchError, Options};

/// libfabric, with a provider of its or the best there is. Displayed as `--fabric` spells it, `ofi:tcp`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OfiFabric {
    provider: Option<String>,
}

impl OfiFabric {
    /// The fabric of this name: `ofi`, or `ofi:` and a provider. Whether it is there is found out when something is measured.
    #[must_use]
    pub(crate) fn named(text: &str) -> Option<Self> {
        match text.parse() {
            Ok(FabricChoice::Ofi(provider)) => Some(Self { provider }),
            _ => None,
        }
    }

    /// The provider, if it is not the best there is.
    pub(crate) fn provider(&self) -> Option<&str> {
        self.provider.as_deref()
    }

    /// What a job is told.
    pub(crate) fn choice(&self) -> FabricChoice {
        FabricChoice::Ofi(self.provider.clone())
    }
}

impl fmt::Display for OfiFabric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.choice().fmt(f)
    }
}

/// The variable from which jobs take the address of this machine at which libfabric is to be reached.
pub(crate) const ADDRESS: &str = "FARSIDE_ADDRESS";

/// What it says.
pub(crate) fn address() -> Option<String> {
    std::env::var(ADDRESS).ok()
}

/// A bench that exists over libfabric. The names of its cases are those of the same bench elsewhere, with the fabric's behind.
struct BenchOverOfi {
    name: &'static str,
    about: &'static str,
    cases: fn(&OfiFabric) -> Vec<Case>,
}

const BENCHES: &[BenchOverOfi] = &[
    BenchOverOfi {
        name: "invoke-throughput",
        about: "one-way calls between two processes, beside a stream of libfabric's own puts",
        cases: invoke_throughput::cases_over_ofi,
    },
    BenchOverOfi {
        name: "invoke-latency",
        about: "round trips of calls between two processes, beside libfabric's own messages",
        cases: invoke_latency::cases_over_ofi,
    },
    BenchOverOfi {
        name: "transfer-throughput",
        about: "puts, signalled by hand, by a transmitter and each, beside libfabric's own",
        cases: transfer_throughput::cases_over_ofi,
    },
    BenchOverOfi {
        name: "oversubscribed",
        about: "what processes cost that wait for something to arrive",
        cases: oversubscribed::cases_over_ofi,
    },
    BenchOverOfi { name: copy::NAME, about: copy::ABOUT, cases: copy::cases_over_ofi },
    BenchOverOfi { name: footprint::NAME, about: footprint::ABOUT, cases: footprint::cases_over_ofi },
    BenchOverOfi { name: pipe_scaling::NAME, about: pipe_scaling::ABOUT, cases: pipe_scaling::cases_over_ofi },
    BenchOverOfi { name: stencil::NAME, about: stencil::ABOUT, cases: stencil::cases_over_ofi },
    BenchOverOfi { name: pipe_latency::NAME, about: pipe_latency::ABOUT, cases: pipe_latency::cases_over_ofi },
    BenchOverOfi { name: multi_job::NAME, about: multi_job::ABOUT, cases: multi_job::cases_over_ofi },
];

/// The benches that exist over libfabric.
#[must_use]
pub(crate) fn list_over_ofi(fabric: &OfiFabric) -> Vec<Listing> {
    let cases = |bench: &BenchOverOfi| (bench.cases)(fabric).into_iter().map(|case| case.name).collect();
    BENCHES.iter().map(|bench| Listing { name: bench.name, about: bench.about, cases: cases(bench) }).collect()
}

/// Runs the benches of these names over libfabric, or all that there are when there are no names, and hands every row to `on_row`
/// as soon as it is there.
///
/// # Errors
/// - [`BenchError::NotOnFabric`] or [`BenchError::NoSuchCase`] before anything is measured;
/// - [`BenchError::Job`] when libfabric or the provider is not there, before anything is measured, too;
/// - others as for [`run`](crate::run).
pub(crate) fn run_over_ofi(
    names: &[String],
    options: Options,
    fabric: &OfiFabric,
    on_row: &mut dyn FnMut(&Row) -> io::Result<()>,
) -> Result<(), BenchError> {
    let mut chosen = Vec::new();
    for name in names.iter().map(|name| Name::of(name)) {
        let bench = find(name.bench, fabric)?;
        chosen.push((bench.name, name.choose((bench.cases)(fabric))?));
    }
    if chosen.is_empty() {
        chosen.extend(BENCHES.iter().map(|bench| (bench.name, (bench.cases)(fabric))));
    }
    // Better now than as the end of a job.
    drop(RawEnd::open(fabric.provider(), address().as_deref(), 0)?);
    for (bench, cases) in chosen {
        measure_all(bench, &cases, options, on_row)?;
    }
    Ok(())
}

fn find(name: &str, fabric: &OfiFabric) -> Result<&'static BenchOverOfi, BenchError> {
    let known = || BENCHES.iter().map(|bench| bench.name).collect::<Vec<_>>().join(", ");
    let found = BENCHES.iter().find(|bench| bench.name == name);
    found.ok_or_else(|| BenchError::NotOnFabric { name: name.into(), fabric: fabric.to_string(), known: known() })
}

/// The cases of the bench that has `case`, if that is one over libfabric.
///
/// # Errors
/// [`BenchError::NotOnFabric`].
pub(crate) fn cases_with(bench: &str, case: &str) -> Result<Option<Vec<Case>>, BenchError> {
    let fabric = case.rsplit('/').next().and_then(OfiFabric::named);
    fabric.map(|fabric| Ok((find(bench, &fabric)?.cases)(&fabric))).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fabrics_are_spelled_as_they_are_read() {
        for text in ["ofi", "ofi:tcp", "ofi:verbs", "ofi:tcp;ofi_rxm"] {
            assert_eq!(OfiFabric::named(text).unwrap().to_string(), text);
        }
        for text in ["", "shm", "auto", "ofi:", "tcp", "sim:fdr"] {
            assert_eq!(OfiFabric::named(text), None, "{text}");
        }
    }

    #[test]
    fn a_child_finds_every_case() {
        for fabric in ["ofi", "ofi:tcp", "ofi:verbs"].map(|text| OfiFabric::named(text).unwrap()) {
            for listing in list_over_ofi(&fabric) {
                assert!(!listing.cases.is_empty(), "{listing:?}");
                for case in &listing.cases {
                    assert!(case.ends_with(&format!("/{fabric}")), "{case}");
                    let cases = cases_with(listing.name, case).unwrap().unwrap();
                    assert_eq!(cases.iter().filter(|found| found.name == *case).count(), 1, "{case}");
                }
            }
        }
        assert!(cases_with("invoke-latency", "call-return/8B").unwrap().is_none());
        assert!(matches!(cases_with("mcts-scaling", "local/ofi"), Err(BenchError::NotOnFabric { .. })));
    }

    #[test]
    fn the_contract_is_kept() {
        let listed = list_over_ofi(&OfiFabric::named("ofi:tcp").unwrap());
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
    fn what_is_not_there_is_refused_before_anything_runs() {
        let run = |names: &[&str], fabric: &str| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            let fabric = OfiFabric::named(fabric).unwrap();
            run_over_ofi(&names, Options::new(), &fabric, &mut |_| panic!("nothing is measured")).unwrap_err()
        };
        let text = run(&["invoke-latency", "mcts-scaling"], "ofi:tcp").to_string();
        assert!(text.contains("mcts-scaling") && text.contains("ofi:tcp") && text.contains("invoke-latency"), "{text}");
        let text = run(&["invoke-latency"], "ofi:no_such_provider").to_string();
        assert!(text.contains("no_such_provider") && text.contains("farside info"), "{text}");
    }
}
