//! The words of the command line.

use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::beds::Bed;

/// The developer's commands.
#[derive(Debug, Parser)]
#[command(bin_name = "cargo xtask")]
pub(crate) struct Xtask {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// A command.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the fast tests, or with --deep all others
    Test(TestOptions),
    /// Check formatting, clippy, documents and tidy, with warnings denied
    Lint,
    /// Check the rules that no compiler checks
    Tidy {
        /// Lower the allowances to the numbers of today
        #[arg(long)]
        lower: bool,
    },
    /// Print the lines of code of each crate
    Lines,
    /// Take pictures of the demonstrations in a browser, into docs/pictures
    Pictures,
    /// Install what the test beds need, or print how
    Setup {
        /// The beds to set up: all if none is named
        beds: Vec<Bed>,
        /// A bed to leave out
        #[arg(long, value_name = "BED")]
        without: Vec<Bed>,
    },
    /// Run two ranks in two network namespaces with a cable between them
    Netns(BedOptions),
    /// Run four ranks under mpirun, then under srun of a Slurm of its own
    Launchers(BedOptions),
    /// Run a verbs device, soft-RoCE, in an emulated machine
    RdmaVm(BedOptions),
    /// Run the tests of libfabric with the library of a Python package
    Wheel(BedOptions),
    /// Keep one processor busy until the parent ends
    #[command(hide = true)]
    Busy,
}

/// The options of `test`.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct TestOptions {
    /// Run these groups of deep tests: all if none is named
    #[arg(long, value_name = "GROUP", num_args = 0..)]
    pub(crate) deep: Option<Vec<String>>,
    /// List the groups of deep tests and what each proves
    #[arg(long)]
    pub(crate) list: bool,
    /// Leave out the groups that have passed on this commit
    #[arg(long, requires = "deep")]
    pub(crate) resume: bool,
    /// Run only tests whose name contains this
    #[arg(long, value_name = "TEXT", conflicts_with = "deep")]
    pub(crate) only: Option<String>,
    /// Keep this number of processes busy beside the tests
    #[arg(long, value_name = "K", default_value_t = 0)]
    pub(crate) under_load: usize,
    /// The number of tests that run at the same time [default: twice the number of processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) jobs: Option<u16>,
    /// A bed to leave out
    #[arg(long, value_name = "BED", requires = "deep")]
    pub(crate) without: Vec<Bed>,
}

/// The options of a bed.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct BedOptions {
    /// A bed to leave out
    #[arg(long, value_name = "BED")]
    pub(crate) without: Vec<Bed>,
    /// Time from the start of the ranks until the cable is cut (netns)
    #[arg(long = "cut", value_name = "MS")]
    pub(crate) cut_ms: Option<u64>,
    /// Delay of every packet (netns)
    #[arg(long = "delay", value_name = "MS", default_value_t = 0)]
    pub(crate) delay_ms: u32,
    /// Share of lost packets (netns)
    #[arg(long = "loss", value_name = "PERCENT", default_value_t = 0.0)]
    pub(crate) loss_percent: f32,
    /// Time limit of the whole run
    #[arg(long = "limit", value_name = "SECONDS")]
    limit_s: Option<u64>,
    /// The program to run and its arguments, instead of the checks of the bed
    #[arg(last = true)]
    pub(crate) program: Vec<String>,
}

impl BedOptions {
    /// Returns options that only leave out beds.
    pub(crate) fn without(without: &[Bed]) -> Self {
        Self { without: without.to_vec(), ..Self::default() }
    }

    /// The time limit of the whole run.
    pub(crate) fn limit(&self) -> Option<Duration> {
        self.limit_s.map(Duration::from_secs)
    }

    /// The time from the start of the ranks until the cable is cut.
    pub(crate) fn cut_after(&self) -> Option<Duration> {
        self.cut_ms.map(Duration::from_millis)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Command, String> {
        let words = ["xtask"].into_iter().chain(line.split_whitespace());
        Xtask::try_parse_from(words).map(|xtask| xtask.command).map_err(|error| error.to_string())
    }

    #[test]
    fn options_and_a_program_are_read() {
        let Ok(Command::Netns(options)) = parse("netns --cut 250 --delay 5 --loss 0.5 --limit 9 -- prog --cut : x")
        else {
            panic!("not read");
        };
        assert_eq!((options.cut_after(), options.delay_ms), (Some(Duration::from_millis(250)), 5));
        assert_eq!((options.loss_percent, options.limit()), (0.5, Some(Duration::from_secs(9))));
        assert_eq!(options.program, ["prog", "--cut", ":", "x"]);
        let Ok(Command::Test(options)) = parse("test --deep --without slurm --without mpi") else {
            panic!("not read");
        };
        assert_eq!((options.deep, options.without), (Some(vec![]), vec![Bed::Slurm, Bed::Mpi]));
    }

    #[test]
    fn unsupported_options_are_refused() {
        for (line, words) in [
            ("test --deep --without mars", "mars"),
            ("test --without mpi", "--deep"),
            ("test --jobs 0", "0"),
            ("lint --without mpi", "--without"),
            ("netns --cut soon", "soon"),
            ("setup mars", "mars"),
            ("explore", "explore"),
        ] {
            let refusal = parse(line).unwrap_err();
            assert!(refusal.contains(words), "{line}: {refusal}");
        }
    }
}
