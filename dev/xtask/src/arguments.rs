//! The words of the command line.

use clap::{Parser, Subcommand};

use crate::beds::{Bed, BedOptions};
use crate::testing::TestOptions;

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

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
