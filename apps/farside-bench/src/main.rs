//! `farside-bench`: every table and figure of the systems that Farside unites, measured against
//! limits of the same run. `farside bench` starts this program.
//!
//! A *bench* has *cases*, and a case has *metrics*; each metric of a case makes one [`Row`]. Next
//! to every value stands a limit: what the same cores do in the same minute without Farside, such
//! as a bare cache line that two cores pass to and fro. Value and limit are measured several times,
//! in turns, and the medians are compared. The ratio therefore survives a noisy machine where the
//! numbers do not.
//!
//! [`BENCHES`] is the table of benches. A bench is a list of cases: each has a name, a shape and a
//! function that measures. The driver does the rest: `matrix` runs the cases on a fabric, `turns`
//! repeats a run and makes a metric of each column of values, and `limits` are measured in the same
//! turns. A bench imports all of this by `kit`.
//!
//! A bench that needs several processes runs a job. The processes of the job run this program again
//! with arguments that begin with [`CHILD_COMMAND`].
//!
//! The command line is a contract, for scripts call it. Results go to the standard output and
//! everything else to the standard error; the exit status is 0 only if all went well.

#![forbid(unsafe_code)]

mod benches;
mod case;
mod error;
mod fabric;
mod kit;
mod launches;
mod limits;
mod matrix;
mod metric;
mod name;
mod options;
mod peers;
mod plot;
mod random;
mod resident;
mod results;
mod row;
mod search_modes;
mod sequential;
mod shared;
mod stats;
mod table;
mod timing;
mod turns;

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use farside::LogGp;

use self::benches::BENCHES;
use self::error::BenchError;
use self::fabric::{Fabric, SimNetwork};
use self::matrix::Listing;
use self::options::Options;
use self::row::Row;
use self::table::Table;

/// The first argument of a process that takes part in a measurement.
const CHILD_COMMAND: &str = "bench-child";

/// Measure, and compare with the limits of this machine in the same run
///
/// Without names all benches run. Each value is a median of several runs; the ratio is the value
/// divided by the limit. Nothing else should run at the same time.
#[derive(Debug, Parser)]
#[command(name = "farside-bench", bin_name = "farside bench")]
struct Arguments {
    /// Benches to run, as --list names them. `copy/private-put` selects those cases of `copy` whose
    /// names begin so
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// List the benches and their cases
    #[arg(long)]
    list: bool,
    /// Take less than a minute for each bench
    #[arg(long)]
    quick: bool,
    /// Write one JSON object a line to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draw one SVG file for each bench and metric in this folder
    #[arg(long, value_name = "DIR")]
    plots: Option<PathBuf>,
    /// Fabric that carries the bytes: shm, libfabric (ofi, ofi:tcp, ofi:verbs), or a simulated
    /// network (sim:fdr, sim:aries, sim:100gbe), whose time is virtual
    #[arg(long, value_name = "FABRIC", env = "FARSIDE_FABRIC")]
    fabric: Option<Fabric>,
    /// Operations in each run, instead of the number that each case chooses
    #[arg(short = 'n', long, value_name = "OPERATIONS", value_parser = clap::value_parser!(u64).range(1..))]
    operations: Option<u64>,
    /// Elements of a container in each process, instead of the number that each case chooses: for
    /// queue and hash-map
    #[arg(short = 's', long, value_name = "LOCAL SIZE", value_parser = clap::value_parser!(u64).range(2..=1 << 32))]
    local_size: Option<u64>,
    /// Leave out the peers: programs of other libraries, such as Open MPI, which run next to the
    /// benches where they are installed
    #[arg(long)]
    no_peers: bool,
    /// Seed of a simulated network; the same seed gives the same rows
    #[arg(long, value_name = "K", default_value_t = 0)]
    seed: u64,
}

fn main() -> ExitCode {
    let own: Vec<String> = std::env::args().skip(1).collect();
    if let Some((command, arguments)) = own.split_first()
        && command == CHILD_COMMAND
    {
        // The launcher learns of an error from the job and reports it; the process itself does not.
        return if matrix::child(BENCHES, arguments).is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    farside_command::run(|arguments: Arguments| run(&arguments))
}

fn run(arguments: &Arguments) -> Result<(), BenchError> {
    let fabric = arguments.fabric.clone().unwrap_or_default();
    if arguments.list {
        return list(matrix::list(BENCHES, &fabric));
    }
    let options = Options::new().quick(arguments.quick).operations(arguments.operations).seed(arguments.seed);
    let local_size = arguments.local_size.map(|size| size as usize);
    let options = Options { local_size, peers: !arguments.no_peers, ..options };
    let mut output = Output::new(arguments)?;
    let mut heading = match fabric {
        Fabric::Simulated(network) => Some(heading(network, arguments.seed)),
        Fabric::Shm | Fabric::Ofi(_) => None,
    };
    let result = matrix::run(BENCHES, &arguments.names, options, &fabric, &mut |row| {
        // The heading is printed with the first row, so that an error before it stands alone.
        if let Some(text) = heading.take() {
            io::stdout().write_all(text.as_bytes())?;
        }
        output.take(row)
    });
    // The note comes last, where it is seen.
    if fabric == Fabric::Shm
        && result.is_ok()
        && options.peers
        && let Some(missing) = peers::missing_peers(&arguments.names)
    {
        eprintln!("farside: {missing}");
    }
    // The rows measured before an error are drawn, too.
    if let Some(folder) = &arguments.plots {
        draw(&output.rows, folder)?;
    }
    result
}

/// Tells the reader that the rows are simulated.
fn heading(network: SimNetwork, seed: u64) -> String {
    let LogGp { latency_ns, overhead_ns, gap_ns, gap_per_byte_ps, get_ns, compare_swap_ns, fetch_ns, word_ns, .. } =
        network.model();
    format!(
        "SIMULATED, in virtual time: {network}, seed {seed} (latency {latency_ns} ns, overhead {overhead_ns} ns, gap \
         {gap_ns} ns, {gap_per_byte_ps} ps a byte; beyond a put a get takes {get_ns} ns, a compare-and-swap \
         {compare_swap_ns} ns, another atomic {fetch_ns} ns; {word_ns} ns between atomics on one word; calls take no \
         time)\n\n"
    )
}

fn list(listings: Vec<Listing>) -> Result<(), BenchError> {
    let mut text = String::new();
    for bench in listings {
        text += &format!("{:<18} {}\n", bench.name, bench.about);
        text += &format!("{:<18}   {}\n", "", bench.cases.join(" "));
    }
    io::stdout().write_all(text.as_bytes()).map_err(BenchError::Output)
}

/// The destinations of rows.
#[derive(Debug)]
struct Output {
    table: Table,
    json: Option<File>,
    rows: Vec<Row>,
}

impl Output {
    /// # Errors
    /// The file for JSON cannot be created. It is better to fail now than after an hour.
    fn new(arguments: &Arguments) -> Result<Self, BenchError> {
        let create = |path: &PathBuf| {
            File::create(path).map_err(|cause| BenchError::System { doing: "writing", path: path.clone(), cause })
        };
        let json = arguments.json.as_ref().map(create).transpose()?;
        Ok(Self { table: Table::new(), json, rows: Vec::new() })
    }

    fn take(&mut self, row: &Row) -> io::Result<()> {
        io::stdout().write_all(self.table.lines(row).as_bytes())?;
        if let Some(file) = &mut self.json {
            writeln!(file, "{}", row.to_json())?;
        }
        self.rows.push(row.clone());
        Ok(())
    }
}

fn draw(rows: &[Row], folder: &Path) -> Result<(), BenchError> {
    for file in plot::plot(rows, folder)? {
        eprintln!("{}", file.display());
    }
    Ok(())
}
