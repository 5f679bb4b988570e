//! `farside-bench`: every table and figure of the systems that Farside unites, measured against
//! limits of the same run. `farside bench` starts this program.
//!
//! A *bench* has *cases*, and a case has *metrics*; each metric of a case makes one [`Row`]. Next
//! to every value stands a limit: what the same cores do in the same minute without Farside, such
//! as a bare cache line that two cores pass to and fro. Value and limit are measured several times,
//! in turns, and the medians are compared. The ratio therefore survives a noisy machine where the
//! numbers do not.
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
mod launches;
mod limits;
mod matrix;
mod metric;
mod name;
mod options;
mod over_ofi;
mod peers;
mod plot;
mod resident;
mod results;
mod row;
mod search_modes;
mod sequential;
mod shared;
mod simulated;
mod stats;
mod table;
mod timing;

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;
use farside::LogGp;

use self::error::BenchError;
use self::fabric::Fabric;
use self::matrix::Listing;
use self::options::Options;
use self::row::Row;
use self::table::Table;

/// The first argument of a process that takes part in a measurement.
const CHILD_COMMAND: &str = "bench-child";

/// The exit status for a command line that makes no sense.
const USAGE: u8 = 2;

/// Measure, beside the limits of this machine in the same run
///
/// Without names all benches are run. Each value is a median of several runs; the ratio is the value divided by the limit.
/// Nothing else should run meanwhile.
#[derive(Debug, Parser)]
#[command(name = "farside-bench", bin_name = "farside bench")]
struct Arguments {
    /// Which benches; --list says what there is. `copy/private-put` are those cases of `copy` that begin so
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
    /// What carries the bytes: shm, libfabric (ofi, ofi:tcp, ofi:verbs), or a simulated network (sim:fdr, sim:aries,
    /// sim:100gbe), whose time is virtual
    #[arg(long, value_name = "FABRIC", env = "FARSIDE_FABRIC")]
    fabric: Option<Fabric>,
    /// Operations in each run, instead of what each case finds enough
    #[arg(short = 'n', long, value_name = "OPERATIONS", value_parser = clap::value_parser!(u64).range(1..))]
    operations: Option<u64>,
    /// Leave out the programs of others, such as Open MPI's, which are measured beside where they are installed
    #[arg(long)]
    no_peers: bool,
    /// What a simulated network is replayed by
    #[arg(long, value_name = "K", default_value_t = 0)]
    seed: u64,
}

fn main() -> ExitCode {
    let own: Vec<String> = std::env::args().skip(1).collect();
    if let Some((command, arguments)) = own.split_first()
        && command == CHILD_COMMAND
    {
        // The launcher learns of an error from the job and reports it; the process itself does not.
        return if matrix::child(arguments).is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let result = match Arguments::try_parse() {
        Ok(arguments) => run(&arguments),
        Err(error) => return refuse(&error),
    };
    let Err(error) = result else { return ExitCode::SUCCESS };
    eprintln!("farside: error: {}", error::with_causes(&error));
    ExitCode::from(if error.is_usage() { USAGE } else { 1 })
}

/// Prints what the parser of the command line has to say: an error, or the help that was asked for.
fn refuse(error: &clap::Error) -> ExitCode {
    if error.kind() == ErrorKind::DisplayHelp {
        print!("{error}");
        return ExitCode::SUCCESS;
    }
    eprint!("farside: {error}");
    ExitCode::from(USAGE)
}

fn run(arguments: &Arguments) -> Result<(), BenchError> {
    let fabric = arguments.fabric.clone().unwrap_or_default();
    if arguments.list {
        return list(match fabric {
            Fabric::Shm => matrix::list(),
            Fabric::Ofi(fabric) => over_ofi::list_over_ofi(&fabric),
            Fabric::Simulated(_) => simulated::list_simulated(),
        });
    }
    let options = Options::new().quick(arguments.quick).operations(arguments.operations).seed(arguments.seed);
    let options = options.peers(!arguments.no_peers);
    let mut output = Output::new(arguments)?;
    let result = match fabric {
        Fabric::Shm => {
            let result = matrix::run(&arguments.names, options, &mut |row| output.take(row));
            // Behind the rows, where it is seen.
            if let Some(missing) = peers::missing_peers(&arguments.names).filter(|_| options.peers && result.is_ok()) {
                eprintln!("farside: {missing}");
            }
            result
        }
        Fabric::Ofi(fabric) => over_ofi::run_over_ofi(&arguments.names, options, &fabric, &mut |row| output.take(row)),
        Fabric::Simulated(network) => {
            let LogGp { latency_ns, overhead_ns, gap_ns, gap_per_byte_ps } = network.model();
            let text = format!(
                "SIMULATED, in virtual time: {network}, seed {} (latency {latency_ns} ns, overhead {overhead_ns} ns, gap \
                 {gap_ns} ns, {gap_per_byte_ps} ps a byte; calls take no time)\n\n",
                arguments.seed
            );
            let mut heading = Some(text);
            simulated::run_simulated(&arguments.names, options, network, &mut |row| {
                // Not before it is known that something is simulated.
                if let Some(text) = heading.take() {
                    io::stdout().write_all(text.as_bytes())?;
                }
                output.take(row)
            })
        }
    };
    // What was measured before something failed is drawn, too.
    if let Some(folder) = &arguments.plots {
        draw(&output.rows, folder)?;
    }
    result
}

fn list(listings: Vec<Listing>) -> Result<(), BenchError> {
    let mut text = String::new();
    for bench in listings {
        text += &format!("{:<18} {}\n", bench.name, bench.about);
        if !bench.cases.is_empty() {
            text += &format!("{:<18}   {}\n", "", bench.cases.join(" "));
        }
    }
    io::stdout().write_all(text.as_bytes()).map_err(BenchError::Output)
}

/// Where rows go.
#[derive(Debug)]
struct Output {
    table: Table,
    json: Option<File>,
    rows: Vec<Row>,
}

impl Output {
    /// # Errors
    /// When the file for JSON cannot be made: better now than after an hour.
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
