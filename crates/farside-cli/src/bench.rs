//! `farside bench`: the tables and figures.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use farside::LogGp;
use farside_bench::{Listing, Options, Row, Table};

use crate::error::CliError;
use crate::values::{Fabric, at_least_one};

/// Measure, beside the limits of this machine in the same run
///
/// Without names all benches are run. Each value is a median of several runs; the ratio is the value divided by the limit.
/// Nothing else should run meanwhile.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
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
    #[arg(short = 'n', long, value_name = "OPERATIONS", value_parser = at_least_one::<u64>)]
    operations: Option<u64>,
    /// Leave out the programs of others, such as Open MPI's, which are measured beside where they are installed
    #[arg(long)]
    no_peers: bool,
    /// What a simulated network is replayed by
    #[arg(long, value_name = "K", default_value_t = 0)]
    seed: u64,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), CliError> {
    let fabric = arguments.fabric.clone().unwrap_or_default();
    if arguments.list {
        return list(match fabric {
            Fabric::Shm => farside_bench::list(),
            Fabric::Ofi(fabric) => farside_bench::list_over_ofi(&fabric),
            Fabric::Simulated(_) => farside_bench::list_simulated(),
        });
    }
    if arguments.plots.is_some() && !cfg!(feature = "plots") {
        return Err(CliError::NoPlots);
    }
    let options = Options::new().quick(arguments.quick).operations(arguments.operations).seed(arguments.seed);
    let options = options.peers(!arguments.no_peers);
    let mut output = Output::new(arguments)?;
    let result = match fabric {
        Fabric::Shm => {
            let result = farside_bench::run(&arguments.names, options, &mut |row| output.take(row));
            // Behind the rows, where it is seen.
            if let Some(missing) =
                farside_bench::missing_peers(&arguments.names).filter(|_| options.peers && result.is_ok())
            {
                eprintln!("farside: {missing}");
            }
            result
        }
        Fabric::Ofi(fabric) => {
            farside_bench::run_over_ofi(&arguments.names, options, &fabric, &mut |row| output.take(row))
        }
        Fabric::Simulated(network) => {
            let LogGp { latency_ns, overhead_ns, gap_ns, gap_per_byte_ps } = network.model();
            let text = format!(
                "SIMULATED, in virtual time: {network}, seed {} (latency {latency_ns} ns, overhead {overhead_ns} ns, gap \
                 {gap_ns} ns, {gap_per_byte_ps} ps a byte; calls take no time)\n\n",
                arguments.seed
            );
            let mut heading = Some(text);
            farside_bench::run_simulated(&arguments.names, options, network, &mut |row| {
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
    Ok(result?)
}

fn list(listings: Vec<Listing>) -> Result<(), CliError> {
    let mut text = String::new();
    for bench in listings {
        text += &format!("{:<18} {}\n", bench.name, bench.about);
        if !bench.cases.is_empty() {
            text += &format!("{:<18}   {}\n", "", bench.cases.join(" "));
        }
    }
    io::stdout().write_all(text.as_bytes()).map_err(CliError::Output)
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
    fn new(arguments: &Arguments) -> Result<Self, CliError> {
        let create = |path: &PathBuf| File::create(path).map_err(|cause| CliError::File { path: path.clone(), cause });
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

#[cfg(feature = "plots")]
fn draw(rows: &[Row], folder: &Path) -> Result<(), CliError> {
    for file in farside_bench::plot(rows, folder)? {
        eprintln!("{}", file.display());
    }
    Ok(())
}

#[cfg(not(feature = "plots"))]
fn draw(_: &[Row], _: &Path) -> Result<(), CliError> {
    Err(CliError::NoPlots)
}
