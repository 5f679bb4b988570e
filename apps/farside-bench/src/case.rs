//! Cases: what a bench measures, here or in a job that is started for it.

use std::fmt;
use std::num::NonZero;
use std::path::Path;
use std::time::Duration;

use farside::job::{Bind, FabricChoice};
use farside::{Worker, WorkerId};

use crate::fabric::Fabric;
use crate::metric::Metric;
use crate::results::{self, Results};
use crate::row::Row;
use crate::{BenchError, CHILD_COMMAND, Options, launches};

/// The longest time of a job. A case that takes longer hangs.
const TIME_LIMIT: Duration = Duration::from_secs(300);

/// One case of a bench.
pub(crate) struct Case {
    pub(crate) name: String,
    work: Work,
}

enum Work {
    /// In this process.
    Here(Box<Here>),
    /// In a job.
    Job(JobCase),
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Case").field("name", &self.name).finish_non_exhaustive()
    }
}

const UNCHECKED: &str = "unchecked";

/// Measures in this process, or computes from the rows of earlier cases of the same bench.
type Here = dyn Fn(Options, &[Row]) -> Result<Vec<Metric>, BenchError>;
/// The work of every worker of the job. The metrics of worker 0 are the result.
type Body = dyn Fn(&Worker, Options) -> Result<Vec<Metric>, BenchError> + Send + Sync;
/// Runs the job once with these options and returns the metrics that its processes measured.
pub(crate) type RunOnce<'r> = &'r mut dyn FnMut(Options) -> Result<Vec<Metric>, BenchError>;
/// Runs the job as often as necessary and computes the metrics of the case.
type Around = dyn Fn(Options, RunOnce<'_>) -> Result<Vec<Metric>, BenchError> + Send + Sync;

struct JobCase {
    fabric: FabricChoice,
    processes: u32,
    threads: u32,
    body: Box<Body>,
    around: Box<Around>,
    /// Sizes of the groups that are launched separately and join; `None` for a single launch.
    groups: Option<Vec<u32>>,
}

impl JobCase {
    /// Binds workers to cores if each worker can have one. The scheduler sometimes puts two workers
    /// that wait for each other on the same core.
    fn bind(&self) -> Bind {
        let cpus = std::thread::available_parallelism().map_or(1, NonZero::get);
        if self.processes as usize * self.threads as usize <= cpus { Bind::Core } else { Bind::None }
    }
}

impl Case {
    /// A case that is measured in this process.
    pub(crate) fn here(
        name: impl Into<String>,
        measure: impl Fn(Options) -> Result<Vec<Metric>, BenchError> + 'static,
    ) -> Self {
        Self::after(name, move |options, _| measure(options))
    }

    /// A case that is measured in this process and reads the rows of earlier cases of the same
    /// bench.
    pub(crate) fn after(
        name: impl Into<String>,
        measure: impl Fn(Options, &[Row]) -> Result<Vec<Metric>, BenchError> + 'static,
    ) -> Self {
        Self { name: name.into(), work: Work::Here(Box::new(measure)) }
    }

    /// A case that is measured in a job of `processes` processes with one worker each.
    pub(crate) fn job(
        name: impl Into<String>,
        processes: u32,
        body: impl Fn(&Worker, Options) -> Result<Vec<Metric>, BenchError> + Send + Sync + 'static,
    ) -> Self {
        Self::around_job(name, processes, body, |options, run_once| run_once(options))
    }

    /// A case that is measured in such jobs and by the launcher around them.
    pub(crate) fn around_job(
        name: impl Into<String>,
        processes: u32,
        body: impl Fn(&Worker, Options) -> Result<Vec<Metric>, BenchError> + Send + Sync + 'static,
        around: impl Fn(Options, RunOnce<'_>) -> Result<Vec<Metric>, BenchError> + Send + Sync + 'static,
    ) -> Self {
        let (fabric, around) = (FabricChoice::Shm, Box::new(around));
        let job = JobCase { fabric, processes, threads: 1, body: Box::new(body), around, groups: None };
        Self { name: name.into(), work: Work::Job(job) }
    }

    /// A case that is measured in a job with [checked](farside::Job::check_accesses) accesses,
    /// against a job without.
    pub(crate) fn checked_job(
        name: impl Into<String>,
        processes: u32,
        body: impl Fn(&Worker, Options) -> Result<Vec<Metric>, BenchError> + Send + Sync + 'static,
    ) -> Self {
        Self::around_job(name, processes, body, |options, run_once| {
            let unchecked = run_once(options)?;
            let checked = run_once(Options { checks: true, ..options })?;
            let of_same = |checked: &Metric| unchecked.iter().find(|metric| metric.name == checked.name);
            let against = |checked: Metric| match of_same(&checked) {
                Some(unchecked) => checked.against(UNCHECKED, unchecked.samples.clone()),
                None => checked,
            };
            Ok(checked.into_iter().map(against).collect())
        })
    }

    /// A case that is computed from the rows of earlier cases of the same bench.
    pub(crate) fn from_rows(name: impl Into<String>, compute: impl Fn(&[Row]) -> Vec<Metric> + 'static) -> Self {
        Self::after(name, move |_, rows| Ok(compute(rows)))
    }

    /// Sets the number of workers of each process.
    pub(crate) fn threads(mut self, threads: u32) -> Self {
        if let Work::Job(job) = &mut self.work {
            job.threads = threads;
        }
        self
    }

    /// Launches the processes in separate groups of these sizes, which join into one job.
    pub(crate) fn launched_in(mut self, groups: Vec<u32>) -> Self {
        if let Work::Job(job) = &mut self.work {
            job.groups = Some(groups);
        }
        self
    }

    /// Puts the case on a fabric. The job uses the fabric, and the name ends with the name of the
    /// fabric unless that is shared memory.
    pub(crate) fn on(mut self, fabric: &Fabric) -> Self {
        if *fabric != Fabric::Shm {
            self.name = format!("{}/{fabric}", self.name);
        }
        if let (Work::Job(job), Fabric::Ofi(fabric)) = (&mut self.work, fabric) {
            job.fabric = fabric.choice();
        }
        self
    }

    /// Measures the case of `bench`, given the rows of the cases before it.
    pub(crate) fn measure(&self, bench: &str, options: Options, before: &[Row]) -> Result<Vec<Metric>, BenchError> {
        match &self.work {
            Work::Here(measure) => measure(options, before),
            Work::Job(job) => (job.around)(options, &mut |options| {
                let results = Results::new()?;
                match &job.groups {
                    None => self.run_job(job, bench, options, &results.path())?,
                    Some(groups) => {
                        let arguments = self.child_arguments(bench, options, &results.path());
                        launches::run(groups, &arguments, &results, TIME_LIMIT)?;
                    }
                }
                results.take()
            }),
        }
    }

    /// Takes part in the job of this case as one of its processes.
    ///
    /// # Errors
    /// The errors of the job, which its launcher also receives; [`BenchError::ChildArguments`] if
    /// the case has no job.
    pub(crate) fn take_part(&self, bench: &str, options: Options, results: &Path) -> Result<(), BenchError> {
        match &self.work {
            Work::Here(_) => Err(BenchError::ChildArguments { what: "the case needs no job" }),
            Work::Job(job) => {
                // The launcher decides whether accesses are checked, and passes that on.
                let result = self.run_job(job, bench, options, results);
                if let Err(error) = &result
                    && !farside::job::is_reported()
                {
                    // Groups that join have no common launcher that could report the error.
                    results::leave_text(&error.to_string(), results)?;
                }
                result
            }
        }
    }

    /// The arguments of a process that takes part.
    fn child_arguments(&self, bench: &str, options: Options, results: &Path) -> Vec<String> {
        let results = results.to_string_lossy().into_owned();
        let case = [CHILD_COMMAND.to_owned(), bench.to_owned(), self.name.clone(), results];
        case.into_iter().chain(options.to_arguments()).collect()
    }

    /// Runs the job: the launcher and each of its children come here.
    fn run_job(&self, job: &JobCase, bench: &str, options: Options, results: &Path) -> Result<(), BenchError> {
        let job_to_run = farside::job().processes(job.processes).threads_per_process(job.threads).bind(job.bind());
        job_to_run
            .check_accesses(options.checks)
            .force_fabric(job.fabric.clone())
            .entry(self.child_arguments(bench, options, results))
            .time_limit(TIME_LIMIT)
            .run(|me| {
                let metrics = (job.body)(me, options)?;
                if me.id() == WorkerId::new(0) {
                    results::leave(&metrics, results)?;
                }
                Ok(())
            })?;
        Ok(())
    }
}
