//! [`Nics`]: the network devices that the processes of a job use.

use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

use farside_fabric::ProcessId;

/// The longest list, as text.
const BYTES_MAX: usize = 1024;

/// Network devices, by the names that libfabric gives them (`farside info` lists them), separated
/// by commas. The processes take them in turns: with two devices, processes with even numbers use
/// the first, the others the second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nics(Vec<String>);

impl Nics {
    /// Returns the device of a process.
    pub fn of(&self, process: ProcessId) -> &str {
        &self.0[process.index() % self.0.len()]
    }
}

/// The text does not name any devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("names of network devices are expected, separated by commas, as `farside info` lists them")]
pub struct NoNics;

impl FromStr for Nics {
    type Err = NoNics;

    fn from_str(text: &str) -> Result<Self, NoNics> {
        let names: Vec<String> = text.split(',').map(|name| name.trim().to_owned()).collect();
        let are_names =
            text.len() <= BYTES_MAX && names.iter().all(|name| !name.is_empty() && !name.contains(char::is_control));
        are_names.then_some(Self(names)).ok_or(NoNics)
    }
}

impl Display for Nics {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_dealt_out_in_turns() {
        let nics: Nics = "mlx5_0, mlx5_1,eth0".parse().unwrap();
        let of = |process| nics.of(ProcessId::new(process));
        assert_eq!([0, 1, 2, 3].map(of), ["mlx5_0", "mlx5_1", "eth0", "mlx5_0"]);
        assert_eq!(nics.to_string().parse(), Ok(nics));
        assert_eq!("lo".parse::<Nics>().unwrap().of(ProcessId::new(7)), "lo");
    }

    #[test]
    fn unknown_devices_are_refused() {
        for text in ["", ",", "eth0,", ",eth0", "a,,b", "a\0", "a\nb", " "] {
            assert_eq!(text.parse::<Nics>(), Err(NoNics), "{text:?}");
        }
        assert_eq!("x".repeat(BYTES_MAX + 1).parse::<Nics>(), Err(NoNics));
    }
}
