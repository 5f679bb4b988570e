//! A thread's wait for a queue, during which it makes the queue's progress.

use std::sync::Arc;
use std::time::{Duration, Instant};

use farside_fabric::clock::Clock;
use farside_fabric::ids::ProcessId;
use farside_fabric::transport::{FabricError, Transport};

/// Number of looks in vain before a thread naps between them. It takes longer than an answer on a
/// fast network.
const LOOKS_BEFORE_NAPS: u32 = 1000;
/// Number of looks per reading of the clock.
const LOOKS_A_CLOCK: u32 = 16;
const NAP: Duration = Duration::from_micros(50);

/// A thread's looks in vain so far.
#[derive(Debug)]
pub(crate) struct Looks<'t> {
    transport: &'t Arc<dyn Transport>,
    clock: Clock,
    count: u32,
}

impl<'t> Looks<'t> {
    pub(crate) fn new(transport: &'t Arc<dyn Transport>) -> Self {
        Self { transport, clock: transport.clock(), count: 0 }
    }

    /// Continues after a look that found something, though not the awaited event.
    ///
    /// # Errors
    /// [`FabricError::Deadline`].
    pub(crate) fn go_on_until(
        &self,
        deadline: Instant,
        doing: &'static str,
        process: ProcessId,
    ) -> Result<(), FabricError> {
        if self.clock.now() >= deadline { Err(FabricError::Deadline { doing, process }) } else { Ok(()) }
    }

    /// Pauses after a look that found nothing.
    ///
    /// # Errors
    /// [`FabricError::Deadline`].
    pub(crate) fn pause_until(
        &mut self,
        deadline: Instant,
        doing: &'static str,
        process: ProcessId,
    ) -> Result<(), FabricError> {
        self.count += 1;
        let naps = self.count > LOOKS_BEFORE_NAPS || self.clock.is_simulated();
        if !naps && !self.count.is_multiple_of(LOOKS_A_CLOCK) {
            std::hint::spin_loop();
            return Ok(());
        }
        let now = self.clock.now();
        if now >= deadline {
            return Err(FabricError::Deadline { doing, process });
        }
        if naps {
            self.transport.stop_polling();
            let nap = if self.clock.is_simulated() { deadline - now } else { NAP };
            self.clock.sleep_until_event(nap);
        }
        Ok(())
    }
}
