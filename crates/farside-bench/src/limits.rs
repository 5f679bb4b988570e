//! What the machine can do: the yardsticks that cases are set against, measured in the same run between the same processes.

pub(crate) mod libfabric;
pub(crate) mod ping_pong;
pub(crate) mod stream;

use crate::BenchError;

/// What a case is set against: two workers measure it together, in turns with the case.
pub(crate) trait Yardstick {
    /// What the rows call it.
    fn name(&self) -> &str;

    /// Measures it once, in the unit of the case.
    fn lead(&mut self) -> Result<f64, BenchError>;

    /// What the other worker does meanwhile.
    fn follow(&mut self) -> Result<(), BenchError>;
}
