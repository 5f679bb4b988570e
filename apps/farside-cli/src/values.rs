//! Values of options that several commands share.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A text that is not a whole number of at least 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at least one is needed: give a whole number such as 1 or 4")]
pub(crate) struct InvalidCount;

/// Reads a whole number of at least 1.
pub(crate) fn at_least_one<T: FromStr + Default + PartialEq>(text: &str) -> Result<T, InvalidCount> {
    text.parse().ok().filter(|count| *count != T::default()).ok_or(InvalidCount)
}

/// A time above zero, given in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seconds(pub(crate) Duration);

/// A text that is not a time above zero.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid time {0:?}: give seconds above 0, such as 5 or 0.5")]
pub(crate) struct InvalidTime(String);

impl FromStr for Seconds {
    type Err = InvalidTime;

    fn from_str(text: &str) -> Result<Self, InvalidTime> {
        let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        seconds.filter(|time| !time.is_zero()).map(Self).ok_or_else(|| InvalidTime(text.into()))
    }
}

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.as_secs_f64())
    }
}

/// The number of processes and of the threads of each: `2x4`. A third number in front counts
/// machines and must be 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) processes: u32,
    pub(crate) threads: u32,
}

/// A text that is not the shape of a job on this machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidShape {
    /// The text has another form.
    #[error("invalid shape {0:?}: give PROCESSESxTHREADS, such as 2x4")]
    Text(String),
    /// The text names several machines.
    #[error(
        "invalid shape {0:?}: its first number counts machines, and this command starts processes on this machine only; \
         start the program on several machines with mpirun or srun (docs/running-on-a-cluster.md)"
    )]
    Machines(String),
}

impl FromStr for Shape {
    type Err = InvalidShape;

    fn from_str(text: &str) -> Result<Self, InvalidShape> {
        let numbers = text.split('x').map(at_least_one::<u32>).collect::<Result<Vec<_>, _>>();
        match numbers.as_deref() {
            Ok(&[processes, threads] | &[1, processes, threads]) => Ok(Self { processes, threads }),
            Ok([_, _, _]) => Err(InvalidShape::Machines(text.into())),
            _ => Err(InvalidShape::Text(text.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_begin_at_one() {
        assert_eq!((at_least_one("1"), at_least_one("4294967295")), (Ok(1_u32), Ok(u32::MAX)));
        for text in ["", "0", "00", "-1", "1.5", "4294967296", "many"] {
            assert_eq!(at_least_one::<u32>(text), Err(InvalidCount), "{text}");
        }
    }

    #[test]
    fn shapes_are_processes_and_threads() {
        for text in ["2x4", "1x2x4"] {
            assert_eq!(text.parse(), Ok(Shape { processes: 2, threads: 4 }), "{text}");
        }
        for text in ["", "2", "x", "2x", "0x1", "2x0", "-1x2", "1x1x1x1", "2 x 4", "axb"] {
            assert_eq!(text.parse::<Shape>(), Err(InvalidShape::Text(text.into())), "{text}");
        }
        let machines = "2x2x8".parse::<Shape>().unwrap_err();
        assert!(machines.to_string().contains("mpirun"), "{machines}");
    }

    #[test]
    fn times_are_positive() {
        assert_eq!("0.5".parse(), Ok(Seconds(Duration::from_millis(500))));
        assert_eq!("5".parse(), Ok(Seconds(Duration::from_secs(5))));
        for text in ["", "0", "-1", "nan", "inf", "1e300", "5s", "1e-12"] {
            assert!(text.parse::<Seconds>().is_err(), "{text}");
        }
    }
}
