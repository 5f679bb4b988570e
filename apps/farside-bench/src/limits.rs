//! Limits: what the machine can do, measured in the same run between the same processes.

pub(crate) mod exstack;
pub(crate) mod indirect_calls;
pub(crate) mod libfabric;
pub(crate) mod ping_pong;
pub(crate) mod stream;
pub(crate) mod system;

use crate::BenchError;

/// A limit of a case. Two workers measure it together, in turns with the case.
pub(crate) trait Yardstick {
    /// The name of the limit in rows.
    fn name(&self) -> &str;

    /// Measures the limit once, in the unit of the case.
    fn measure(&mut self) -> Result<f64, BenchError>;

    /// Takes the part of the other worker, if it has one.
    fn answer(&mut self) -> Result<(), BenchError> {
        Ok(())
    }
}
