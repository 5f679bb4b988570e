//! Benches on simulated networks: virtual time, the same every time, beside what was published of real ones.

use std::fmt;
use std::io;

use farside::LogGp;

use crate::benches::{footprint, invoke_throughput, mcts_scaling, pipe_scaling, stencil, transfer_throughput};
use crate::matrix::Listing;
use crate::metric::Metric;
use crate::name::Name;
use crate::row::Row;
use crate::{BenchError, Options};

/// A network to be simulated: one of the [presets](LogGp::PRESETS). Displayed as `--fabric` spells it, `sim:fdr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SimNetwork {
    preset: &'static str,
    model: LogGp,
}

impl SimNetwork {
    /// The preset of this name, without `sim:`.
    #[must_use]
    pub(crate) fn of_preset(name: &str) -> Option<Self> {
        LogGp::PRESETS.iter().find(|(known, _)| *known == name).map(|(preset, model)| Self { preset, model: *model })
    }

    /// All there are.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        LogGp::PRESETS.iter().map(|(preset, model)| Self { preset, model: *model })
    }

    /// What things take on it.
    #[must_use]
    pub(crate) fn model(&self) -> LogGp {
        self.model
    }

    pub(crate) fn preset(&self) -> &'static str {
        self.preset
    }
}

impl fmt::Display for SimNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sim:{}", self.preset)
    }
}

/// What hands a row on.
type OnRow<'r> = &'r mut dyn FnMut(Row) -> Result<(), BenchError>;

/// A bench that exists on simulated networks.
struct SimulatedBench {
    name: &'static str,
    about: &'static str,
    run: fn(SimNetwork, Options, OnRow<'_>) -> Result<(), BenchError>,
}

const BENCHES: &[SimulatedBench] = &[
    SimulatedBench {
        name: "invoke-throughput",
        about: "one-way calls between two simulated processes, and what was published of them (Seriema, Table 2)",
        run: invoke_throughput::run_simulated,
    },
    SimulatedBench { name: stencil::NAME, about: stencil::ABOUT, run: stencil::run_simulated },
    SimulatedBench { name: pipe_scaling::NAME, about: pipe_scaling::ABOUT, run: pipe_scaling::run_simulated },
    SimulatedBench { name: footprint::NAME, about: footprint::ABOUT, run: footprint::run_simulated },
    SimulatedBench {
        name: "mcts-scaling",
        about: "tree search for Hex by up to 64 simulated workers (Seriema, Figure 3)",
        run: mcts_scaling::run_simulated,
    },
    SimulatedBench {
        name: "transfer-throughput",
        about: "puts between two simulated processes, signalled by hand and by a transmitter (Seriema, Figure 2)",
        run: transfer_throughput::run_simulated,
    },
];

/// The benches that exist on simulated networks. Their cases are those of the same bench elsewhere, with the network's name
/// behind; they are not listed.
#[must_use]
pub(crate) fn list_simulated() -> Vec<Listing> {
    BENCHES.iter().map(|bench| Listing { name: bench.name, about: bench.about, cases: Vec::new() }).collect()
}

/// Runs the benches of these names on a simulated network, or all that there are when there are no names, and hands every row
/// to `on_row` as soon as it is there: what was simulated, and what was published of the real network as a peer's. A bench of which a part is named is
/// simulated whole all the same.
///
/// The same options and the same [seed](Options::seed) give the same rows, on any machine, but for the memory that `footprint` finds.
///
/// # Errors
/// As for [`run`](crate::run).
pub(crate) fn run_simulated(
    names: &[String],
    options: Options,
    network: SimNetwork,
    on_row: &mut dyn FnMut(&Row) -> io::Result<()>,
) -> Result<(), BenchError> {
    let mut chosen: Vec<(&SimulatedBench, Name<'_>)> = Vec::new();
    for name in names.iter().map(|name| Name::of(name)) {
        let found = BENCHES.iter().find(|bench| bench.name == name.bench);
        let known = || BENCHES.iter().map(|bench| bench.name).collect::<Vec<_>>().join(", ");
        let found = found.ok_or_else(|| BenchError::NotOnFabric {
            name: name.bench.into(),
            fabric: network.to_string(),
            known: known(),
        })?;
        chosen.push((found, name));
    }
    if chosen.is_empty() {
        chosen.extend(BENCHES.iter().map(|bench| (bench, Name::of(bench.name))));
    }
    for (bench, name) in chosen {
        let (mut known, mut has_wanted) = (Vec::new(), false);
        (bench.run)(network, options, &mut |row| {
            if !name.wants(&row.case) {
                known.push(row.case);
                return Ok(());
            }
            has_wanted = true;
            on_row(&row).map_err(BenchError::Row)
        })?;
        if !has_wanted {
            known.dedup();
            return Err(name.wants_none_of(&known));
        }
    }
    Ok(())
}

/// What a paper says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Published {
    value: f64,
    peer: &'static str,
    /// How often they say they have measured it.
    runs: usize,
}

impl Published {
    /// "Each reported number is an average of three experiments" (Section 5.2).
    pub(crate) fn seriema(value: f64) -> Self {
        Self { value, peer: "seriema-published", runs: 3 }
    }
}

/// Hands on the row of a metric, and behind it what was published.
pub(crate) fn report(
    bench: &str,
    case: &str,
    metric: &Metric,
    published: Option<Published>,
    on_row: OnRow<'_>,
) -> Result<(), BenchError> {
    let row = Row::new(bench, case, metric).ok_or_else(|| BenchError::NothingMeasured {
        bench: bench.into(),
        case: case.into(),
        metric: metric.name.clone(),
    })?;
    on_row(row.clone())?;
    let Some(Published { value, peer, runs }) = published else { return Ok(()) };
    let ratio = row.limit.map(|limit| value / limit);
    on_row(Row { value, min: value, max: value, ratio, runs, peer: Some(peer.into()), ..row })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(network: &str, seed: u64) -> Vec<Row> {
        rows_of("invoke-throughput", network, seed)
    }

    fn rows_of(bench: &str, network: &str, seed: u64) -> Vec<Row> {
        let mut rows = Vec::new();
        let network = SimNetwork::of_preset(network).unwrap();
        let options = Options::new().operations(Some(300)).seed(seed);
        run_simulated(&[bench.to_owned()], options, network, &mut |row| {
            rows.push(row.clone());
            Ok(())
        })
        .unwrap();
        rows
    }

    #[test]
    fn the_same_seed_gives_the_same_rows() {
        let first = rows("fdr", 7);
        assert_eq!(rows("fdr", 7), first);
        assert!(first.iter().all(|row| row.case.ends_with("/sim:fdr")), "{first:?}");
    }

    #[test]
    fn what_was_published_stands_beside() {
        let rows = rows("fdr", 1);
        for (case, megabytes) in
            [("send/8B", 12.07), ("write/64B", 301.47), ("trad/256B", 5318.89), ("ovfl/64B", 283.15)]
        {
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
    fn signalling_by_itself_is_as_fast_as_by_hand() {
        let rows = rows_of("transfer-throughput", "fdr", 3);
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
    fn nothing_is_published_of_other_networks() {
        assert!(rows("aries", 1).iter().all(|row| row.peer.is_none()));
    }

    #[test]
    fn a_search_scales_to_64_workers() {
        let names = ["mcts-scaling".to_owned()];
        let network = SimNetwork::of_preset("fdr").unwrap();
        let run = || {
            let mut rates = Vec::new();
            let options = Options::new().operations(Some(10)).seed(1);
            run_simulated(&names, options, network, &mut |row| {
                if row.metric == "rollouts_per_s" && row.case.ends_with("/ovfl/owner/sim:fdr") {
                    rates.push((row.case.clone(), row.value));
                }
                Ok(())
            })
            .unwrap();
            rates
        };
        let rates = run();
        assert_eq!(rates.first().map(|(case, _)| &**case), Some("1x1x1/ovfl/owner/sim:fdr"));
        assert_eq!(rates.last().map(|(case, _)| &**case), Some("4x2x8/ovfl/owner/sim:fdr"));
        assert!(rates.iter().all(|(_, rate)| *rate > 0.0));
        assert_eq!(run(), rates, "the same seed gives the same search");
    }

    #[test]
    fn rows_are_chosen_by_how_their_cases_begin() {
        let network = SimNetwork::of_preset("fdr").unwrap();
        let options = Options::new().quick(true).operations(Some(50));
        let run = |name: &str| {
            let mut cases = Vec::new();
            let result = run_simulated(&[name.to_owned()], options, network, &mut |row| {
                cases.push(row.case.clone());
                Ok(())
            });
            result.map(|()| cases)
        };
        let chosen = run("invoke-throughput/send").unwrap();
        assert!(!chosen.is_empty() && chosen.iter().all(|case| case.starts_with("send")), "{chosen:?}");
        let refused = run("invoke-throughput/no-such").unwrap_err().to_string();
        assert!(refused.contains("no-such") && refused.contains("send/8B"), "{refused}");
    }

    #[test]
    fn what_is_not_simulated_is_refused() {
        let network = SimNetwork::of_preset("100gbe").unwrap();
        let names = ["oversubscribed".to_owned()];
        let refused = run_simulated(&names, Options::new(), network, &mut |_| panic!("nothing is measured"));
        let text = refused.unwrap_err().to_string();
        assert!(text.contains("oversubscribed") && text.contains("invoke-throughput"), "{text}");
        assert_eq!(SimNetwork::of_preset("token ring"), None);
    }
}
