//! The shape of a job, as an option gives it.

use std::str::FromStr;

use farside_command::at_least_one;

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
}
