//! The matrix of benches and fabrics: listed, run, and taken part in.

use std::io;
use std::path::Path;

use farside_fabric::ofi::raw::RawEnd;

use crate::case::Case;
use crate::error::BenchError;
use crate::fabric::{Fabric, address};
use crate::name::Name;
use crate::options::Options;
use crate::row::Row;

/// The benches that take the size of a container.
const OF_CONTAINERS: [&str; 2] = ["queue", "hash-map"];

/// A bench: a line of the table.
#[derive(Debug)]
pub(crate) struct Bench {
    pub(crate) name: &'static str,
    /// The quantities that it measures, in one line.
    pub(crate) about: &'static str,
    /// Its cases on a fabric; none where the bench does not exist.
    pub(crate) cases: fn(&Fabric) -> Vec<Case>,
}

impl Bench {
    /// The cases on a fabric, under their full names.
    fn cases_on(&self, fabric: &Fabric) -> Vec<Case> {
        (self.cases)(fabric).into_iter().map(|case| case.on(fabric)).collect()
    }
}

/// A bench with its cases on one fabric, as it is listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listing {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    /// The names of its cases.
    pub(crate) cases: Vec<String>,
}

/// Returns those of `benches` that exist on a fabric.
pub(crate) fn list(benches: &[Bench], fabric: &Fabric) -> Vec<Listing> {
    let names = |bench: &Bench| bench.cases_on(fabric).into_iter().map(|case| case.name).collect();
    let all = benches.iter().map(|bench| Listing { name: bench.name, about: bench.about, cases: names(bench) });
    all.filter(|listing| !listing.cases.is_empty()).collect()
}

/// Runs the benches of these names on a fabric, or all that exist on it when there are no names,
/// and passes every row to `on_row` as soon as it is measured. A name may select a part of a bench:
/// `copy/private-put` selects those cases of `copy` whose names begin with `private-put`.
///
/// On a simulated network the same options and the same [seed](Options::seed) give the same rows on
/// any machine, except for the memory that `footprint` finds.
///
/// *Cost*: minutes for each bench, or less than one if the options say so. Nothing else should run
/// meanwhile.
///
/// # Errors
/// - [`BenchError::UnknownBench`] or [`BenchError::NoSuchCase`] before anything is measured.
/// - [`BenchError::Job`] when libfabric or its provider is missing, also before anything is
///   measured.
/// - [`BenchError::Row`] with the error of `on_row`; nothing is measured after that.
/// - The error that keeps a case from being measured.
pub(crate) fn run(
    benches: &[Bench],
    names: &[String],
    options: Options,
    fabric: &Fabric,
    on_row: &mut dyn FnMut(&Row) -> io::Result<()>,
) -> Result<(), BenchError> {
    let mut chosen = Vec::new();
    for name in names.iter().map(|name| Name::of(name)) {
        let (bench, cases) = find(benches, name.bench, fabric)?;
        chosen.push((bench, name.choose(cases)?));
    }
    if chosen.is_empty() {
        chosen.extend(benches.iter().map(|bench| (bench, bench.cases_on(fabric))));
    }
    let without = chosen.iter().map(|(bench, _)| bench.name).find(|bench| !OF_CONTAINERS.contains(bench));
    if let Some(bench) = without.filter(|_| options.has_local_size()) {
        return Err(BenchError::NoContainer { bench, containers: OF_CONTAINERS.join(" and ") });
    }
    if let Fabric::Ofi(fabric) = fabric {
        // A missing provider is reported here rather than by a job that fails.
        drop(RawEnd::open(fabric.provider(), address().as_deref(), 0)?);
    }
    for (bench, cases) in chosen {
        measure_all(bench.name, &cases, options, on_row)?;
    }
    Ok(())
}

/// Measures these cases of a bench, one after the other.
fn measure_all(
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

/// Takes part in a measurement, in a process that [`run`] started with these arguments after
/// [`CHILD_COMMAND`](crate::CHILD_COMMAND).
///
/// # Errors
/// [`BenchError::ChildArguments`], [`BenchError::UnknownBench`] or [`BenchError::UnknownCase`] for
/// arguments that `run` does not give; the error of the measurement. The process that started this
/// one learns of it from the job.
pub(crate) fn child(benches: &[Bench], arguments: &[String]) -> Result<(), BenchError> {
    let [bench, case, results, quick, runs, operations, local_size] = arguments else {
        return Err(BenchError::ChildArguments { what: "there should be seven" });
    };
    let options = Options::from_arguments([quick, runs, operations, local_size]);
    let options = options.ok_or(BenchError::ChildArguments { what: "the options are not readable" })?;
    let (_, cases) = find(benches, bench, &Fabric::of_job(case))?;
    let found = cases.iter().find(|found| found.name == *case);
    let found = found.ok_or_else(|| BenchError::UnknownCase { bench: bench.clone(), case: case.clone() })?;
    found.take_part(bench, options, Path::new(results))
}

/// Returns the bench of this name, and its cases on a fabric.
pub(crate) fn find<'b>(
    benches: &'b [Bench],
    name: &str,
    fabric: &Fabric,
) -> Result<(&'b Bench, Vec<Case>), BenchError> {
    let found = benches.iter().find(|bench| bench.name == name).map(|bench| (bench, bench.cases_on(fabric)));
    found.filter(|(_, cases)| !cases.is_empty()).ok_or_else(|| {
        let known: Vec<_> = list(benches, fabric).iter().map(|listing| listing.name).collect();
        BenchError::UnknownBench { name: name.into(), fabric: fabric.to_string(), known: known.join(", ") }
    })
}
