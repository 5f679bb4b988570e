//! What carries the bytes of a measurement.

use std::str::FromStr;

use crate::over_ofi::OfiFabric;
use crate::simulated::SimNetwork;

/// What carries the bytes of a measurement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Fabric {
    /// Shared memory of one machine.
    #[default]
    Shm,
    /// libfabric, also inside one machine.
    Ofi(OfiFabric),
    /// None: the network is simulated, in virtual time.
    Simulated(SimNetwork),
}

/// A text that names no fabric to measure on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "nothing is measured on the fabric {0:?}; there are shm, the shared memory of this machine, libfabric as ofi or ofi:PROVIDER \
     (ofi:tcp, ofi:verbs), and the simulated networks {known}",
    known = simulated_networks()
)]
pub(crate) struct UnknownFabric(String);

fn simulated_networks() -> String {
    SimNetwork::all().map(|network| network.to_string()).collect::<Vec<_>>().join(", ")
}

impl FromStr for Fabric {
    type Err = UnknownFabric;

    fn from_str(text: &str) -> Result<Self, UnknownFabric> {
        let simulated = || SimNetwork::of_preset(text.strip_prefix("sim:")?).map(Self::Simulated);
        let over_ofi = || OfiFabric::named(text).map(Self::Ofi);
        if text == "shm" {
            Ok(Self::Shm)
        } else {
            over_ofi().or_else(simulated).ok_or_else(|| UnknownFabric(text.into()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_exists_is_a_fabric() {
        assert_eq!("shm".parse(), Ok(Fabric::Shm));
        for network in SimNetwork::all() {
            assert_eq!(network.to_string().parse(), Ok(Fabric::Simulated(network)));
        }
        for text in ["ofi", "ofi:tcp", "ofi:verbs"] {
            assert_eq!(text.parse(), Ok(Fabric::Ofi(OfiFabric::named(text).unwrap())));
        }
        for text in ["", "SHM", "ofi:", "tcp", "auto", "sim", "sim:", "sim:token ring", "fdr"] {
            let error = text.parse::<Fabric>().unwrap_err().to_string();
            assert!(
                error.contains(text)
                    && error.contains("shm")
                    && error.contains("ofi:PROVIDER")
                    && error.contains("sim:fdr"),
                "{error}"
            );
        }
    }
}
