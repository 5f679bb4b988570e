//! The options of a command.

use std::str::FromStr;
use std::time::Duration;

use crate::beds::Bed;
use crate::tidy::Allowances;

/// The options of all commands, and the program to run.
#[derive(Debug, Default)]
pub(crate) struct Arguments {
    /// The beds to leave out.
    pub(crate) without: Vec<Bed>,
    /// The time from the start of the ranks until the cable is cut.
    pub(crate) cut_after: Option<Duration>,
    /// The delay of every packet.
    pub(crate) delay_ms: u32,
    /// The share of lost packets, in percent.
    pub(crate) loss_percent: f32,
    /// The time limit of the whole run.
    pub(crate) limit: Option<Duration>,
    /// Whether `tidy` lowers its allowances.
    pub(crate) allowances: Allowances,
    /// The program to run and its arguments. Empty for the checks of the bed itself.
    pub(crate) program: Vec<String>,
}

impl Arguments {
    /// Reads the words after `command`.
    pub(crate) fn parse(command: &str, words: impl Iterator<Item = String>) -> Result<Self, String> {
        let (mut arguments, mut words) = (Self::default(), words);
        while let Some(word) = words.next() {
            if !options_of(command).contains(&word.as_str()) {
                return Err(format!("{command} does not take {word:?}"));
            }
            match word.as_str() {
                "--lower" => arguments.allowances = Allowances::Lower,
                "--without" => arguments.without.push(value(&word, words.next())?),
                "--cut" => arguments.cut_after = Some(Duration::from_millis(value(&word, words.next())?)),
                "--delay" => arguments.delay_ms = value(&word, words.next())?,
                "--loss" => arguments.loss_percent = value(&word, words.next())?,
                "--limit" => arguments.limit = Some(Duration::from_secs(value(&word, words.next())?)),
                _ => arguments.program = words.by_ref().collect(),
            }
        }
        Ok(arguments)
    }
}

/// Returns the options that a command takes. `--` stands for a program.
fn options_of(command: &str) -> &'static [&'static str] {
    match command {
        "test" | "ci" | "setup" => &["--without"],
        "netns" => &["--cut", "--delay", "--loss", "--limit", "--"],
        "launchers" => &["--without", "--limit", "--"],
        "rdma-vm" => &["--limit", "--"],
        "wheel" => &["--limit"],
        "tidy" => &["--lower"],
        _ => &[],
    }
}

fn value<T: FromStr>(option: &str, word: Option<String>) -> Result<T, String>
where
    T::Err: std::fmt::Display,
{
    let word = word.ok_or_else(|| format!("{option}: no value given: add one after it"))?;
    word.parse().map_err(|error| format!("{option} {word}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(command: &str, line: &str) -> Result<Arguments, String> {
        Arguments::parse(command, line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn options_and_a_program_are_read() {
        let arguments = parse("netns", "--cut 250 --delay 5 --loss 0.5 --limit 9 -- prog --cut : x").unwrap();
        assert_eq!((arguments.cut_after, arguments.delay_ms), (Some(Duration::from_millis(250)), 5));
        assert_eq!((arguments.loss_percent, arguments.limit), (0.5, Some(Duration::from_secs(9))));
        assert_eq!(arguments.program, ["prog", "--cut", ":", "x"]);
        assert_eq!(parse("ci", "--without slurm --without mpi").unwrap().without, [Bed::Slurm, Bed::Mpi]);
    }

    #[test]
    fn unsupported_options_are_refused() {
        for (command, line, words) in [
            ("test", "--without mars", "mars"),
            ("test", "--without", "no value given"),
            ("lint", "--without mpi", "does not take"),
            ("netns", "--cut soon", "soon"),
            ("setup", "-- ls", "does not take"),
        ] {
            let refusal = parse(command, line).unwrap_err();
            assert!(refusal.contains(words), "{command} {line}: {refusal}");
        }
    }
}
