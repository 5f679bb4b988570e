//! How thoroughly to measure.

/// How thoroughly to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    /// True to measure fewer and shorter runs, so that each bench takes less than a minute on
    /// two cores.
    pub(crate) quick: bool,
    /// Number of runs; `None` leaves it to [`runs`](Self::runs).
    pub(crate) runs: Option<usize>,
    /// Number of operations in a run; `None` leaves it to each case.
    pub(crate) operations: Option<u64>,
    /// Elements of a container in each process; `None` leaves it to each case.
    pub(crate) local_size: Option<usize>,
    /// The seed of simulations.
    pub(crate) seed: u64,
    /// True to measure the programs of peers, where they are installed.
    pub(crate) peers: bool,
    /// True if a test measures in a simulation. Its workers run one at a time, so a round trip
    /// between two that poll has no end.
    pub(crate) is_simulated: bool,
    /// True if the job checks accesses. Its processes learn of that from their launcher.
    pub(crate) checks: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            quick: false,
            runs: None,
            operations: None,
            local_size: None,
            seed: 0,
            peers: true,
            is_simulated: false,
            checks: false,
        }
    }
}

impl Options {
    /// Options for a thorough measurement.
    #[must_use]
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Sets whether to measure quickly.
    #[must_use]
    pub(crate) fn quick(mut self, quick: bool) -> Self {
        self.quick = quick;
        self
    }

    /// Sets the number of operations in a run; `None` leaves it to each case.
    #[must_use]
    pub(crate) fn operations(mut self, operations: Option<u64>) -> Self {
        self.operations = operations;
        self
    }

    /// Sets the seed of simulations.
    #[must_use]
    pub(crate) fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Says that the measurement runs in a simulation.
    #[cfg(test)]
    pub(crate) fn simulated(mut self) -> Self {
        self.is_simulated = true;
        self
    }

    /// Sets the number of runs.
    #[must_use]
    pub(crate) fn with_runs(mut self, runs: usize) -> Self {
        self.runs = Some(runs);
        self
    }

    /// Number of runs. By default it is odd, so that the median is one of them.
    pub(crate) fn runs(self) -> usize {
        self.runs.unwrap_or(if self.quick { 5 } else { 9 })
    }

    /// Number of operations in a run: the number that was asked for, or `thorough`, or a tenth of
    /// it for a quick run.
    pub(crate) fn operations_or(self, thorough: u64) -> u64 {
        self.operations.unwrap_or(if self.quick { thorough / 10 } else { thorough }).max(1)
    }

    /// Number of elements of a container in each process: the number that was asked for, or
    /// `otherwise`.
    pub(crate) fn local_size_or(self, otherwise: usize) -> usize {
        self.local_size.unwrap_or(otherwise).max(2)
    }

    /// Returns whether a number of elements was asked for.
    pub(crate) fn has_local_size(self) -> bool {
        self.local_size.is_some()
    }

    /// The options as arguments of a measuring process, which neither simulates nor starts peers.
    pub(crate) fn to_arguments(self) -> [String; 4] {
        let (runs, operations, local_size) = (self.runs, self.operations, self.local_size);
        let numbers = [runs.unwrap_or(0) as u64, operations.unwrap_or(0), local_size.unwrap_or(0) as u64];
        let [runs, operations, local_size] = numbers.map(|number| number.to_string());
        [self.quick.to_string(), runs, operations, local_size]
    }

    /// Reads the arguments that [`to_arguments`](Self::to_arguments) wrote.
    pub(crate) fn from_arguments([quick, runs, operations, local_size]: [&str; 4]) -> Option<Self> {
        let runs = Some(runs.parse().ok()?).filter(|count| *count > 0);
        let operations = Some(operations.parse().ok()?).filter(|count| *count > 0);
        let local_size = Some(local_size.parse().ok()?).filter(|size| *size > 0);
        Some(Self { quick: quick.parse().ok()?, runs, operations, local_size, ..Self::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_travel_as_arguments() {
        for quick in [false, true] {
            for operations in [None, Some(1), Some(u64::MAX)] {
                for (runs, local_size) in [(None, None), (Some(3), Some(5))] {
                    let options = Options { quick, runs, operations, local_size, ..Options::default() };
                    let arguments = options.to_arguments();
                    assert_eq!(Options::from_arguments(arguments.each_ref().map(String::as_str)), Some(options));
                }
            }
        }
        assert_eq!(Options::from_arguments(["maybe", "1", "1", "1"]), None);
        assert_eq!(Options::from_arguments(["true", "1", "-1", "1"]), None);
        assert_eq!(Options::from_arguments(["true", "1", "1", "few"]), None);
    }

    #[test]
    fn explicit_settings_win() {
        assert_eq!(Options::new().operations_or(1000), 1000);
        assert_eq!(Options::new().quick(true).operations_or(1000), 100);
        assert_eq!(Options::new().quick(true).operations_or(1), 1);
        assert_eq!(Options::new().quick(true).operations(Some(7)).operations_or(1000), 7);
    }
}
