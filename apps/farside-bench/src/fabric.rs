//! The fabric that carries the bytes of a measurement.

use std::fmt;
use std::str::FromStr;
use std::sync::Mutex;

use farside::job::FabricChoice;
use farside::{LogGp, SimOptions, Simulation, Worker};

use crate::BenchError;

/// The fabric that carries the bytes of a measurement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Fabric {
    /// Shared memory of one machine.
    #[default]
    Shm,
    /// libfabric, also between processes of one machine.
    Ofi(OfiFabric),
    /// A simulated network, in virtual time.
    Simulated(SimNetwork),
}

/// A text that names no fabric.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid fabric {0:?}: expected shm, ofi, ofi:PROVIDER (such as ofi:tcp or ofi:verbs), or a simulated network: {known}",
    known = simulated_networks()
)]
pub(crate) struct UnknownFabric(String);

fn simulated_networks() -> String {
    SimNetwork::all().map(|network| network.to_string()).collect::<Vec<_>>().join(", ")
}

impl fmt::Display for Fabric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shm => f.write_str("shm"),
            Self::Ofi(fabric) => fabric.fmt(f),
            Self::Simulated(network) => network.fmt(f),
        }
    }
}

impl Fabric {
    /// The fabric of a job, read from the name of its case.
    pub(crate) fn of_job(case: &str) -> Self {
        case.rsplit('/').next().and_then(OfiFabric::named).map_or(Self::Shm, Self::Ofi)
    }
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

/// libfabric with a given provider or the best one. Displayed as `--fabric` spells it, `ofi:tcp`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OfiFabric {
    provider: Option<String>,
}

impl OfiFabric {
    /// Reads `ofi`, or `ofi:` and a provider. A measurement finds out whether the provider exists.
    #[must_use]
    pub(crate) fn named(text: &str) -> Option<Self> {
        match text.parse() {
            Ok(FabricChoice::Ofi(provider)) => Some(Self { provider }),
            _ => None,
        }
    }

    /// The provider; `None` for the best one.
    pub(crate) fn provider(&self) -> Option<&str> {
        self.provider.as_deref()
    }

    /// The setting of a job.
    pub(crate) fn choice(&self) -> FabricChoice {
        FabricChoice::Ofi(self.provider.clone())
    }
}

impl fmt::Display for OfiFabric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.choice().fmt(f)
    }
}

/// The variable with the address of this machine that libfabric uses.
pub(crate) const ADDRESS: &str = "FARSIDE_ADDRESS";

/// The value of [`ADDRESS`].
pub(crate) fn address() -> Option<String> {
    std::env::var(ADDRESS).ok()
}

/// A simulated network: one of the [presets](LogGp::PRESETS). Displayed as `--fabric` spells it,
/// `sim:fdr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SimNetwork {
    preset: &'static str,
    model: LogGp,
}

impl SimNetwork {
    /// Returns the preset of this name, without `sim:`.
    #[must_use]
    pub(crate) fn of_preset(name: &str) -> Option<Self> {
        LogGp::PRESETS.iter().find(|(known, _)| *known == name).map(|(preset, model)| Self { preset, model: *model })
    }

    /// Returns all presets.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        LogGp::PRESETS.iter().map(|(preset, model)| Self { preset, model: *model })
    }

    /// The costs of messages on the network.
    #[must_use]
    pub(crate) fn model(&self) -> LogGp {
        self.model
    }

    pub(crate) fn preset(&self) -> &'static str {
        self.preset
    }

    /// Settings of a simulation in which a message takes no longer than the model says.
    pub(crate) fn settings(&self) -> SimOptions {
        SimOptions { network: self.model, delay_max_ns: 0, ..SimOptions::default() }
    }
}

impl fmt::Display for SimNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sim:{}", self.preset)
    }
}

/// Runs a simulated job, and returns the result of worker 0.
///
/// # Errors
/// The error of a worker.
pub(crate) fn on_simulation<T: Send>(
    simulation: Simulation,
    work: impl Fn(&Worker) -> Result<T, BenchError> + Send + Sync,
) -> Result<T, BenchError> {
    let found = Mutex::new(None);
    let simulated = simulation.run(|me| {
        let result = work(me)?;
        if me.is_first() {
            *found.lock().expect("no thread has panicked") = Some(result);
        }
        Ok(())
    })?;
    simulated.verdict?;
    Ok(found.into_inner().expect("no thread has panicked").expect("worker 0 has returned"))
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

    #[test]
    fn fabrics_are_spelled_as_they_are_read() {
        for text in ["ofi", "ofi:tcp", "ofi:verbs", "ofi:tcp;ofi_rxm"] {
            assert_eq!(OfiFabric::named(text).unwrap().to_string(), text);
        }
        for text in ["", "shm", "auto", "ofi:", "tcp", "sim:fdr"] {
            assert_eq!(OfiFabric::named(text), None, "{text}");
        }
        assert_eq!(SimNetwork::of_preset("token ring"), None);
    }

    #[test]
    fn the_name_of_a_case_ends_with_its_fabric() {
        assert_eq!(Fabric::of_job("call-return/8B"), Fabric::Shm);
        assert_eq!(Fabric::of_job("2/shm"), Fabric::Shm);
        assert_eq!(Fabric::of_job("call-return/8B/ofi:tcp").to_string(), "ofi:tcp");
    }
}
