//! The slots that wait for messages.

use super::{Flight, State};
use crate::ofi::port::Posted;
use crate::ofi::staging::SLOT_BYTES;
use crate::transport::FabricError;

impl State {
    /// Offers a slot to the provider for the next message.
    pub(super) fn offer(&mut self, slot: usize) {
        self.unposted_slots.push(slot);
        self.offer_slots();
    }

    /// Offers the slots that the provider had no room for.
    pub(super) fn offer_slots(&mut self) {
        if let Err(error) = self.post_receives() {
            self.break_down(&error);
        }
    }

    /// Posts a receive for each slot without one, as far as the provider has room now. A provider
    /// may lack room for a while, for example until this process reads completions.
    ///
    /// # Errors
    /// libfabric's error, if it refuses a receive permanently.
    pub(super) fn post_receives(&mut self) -> Result<(), FabricError> {
        while let Some(slot) = self.unposted_slots.pop() {
            let Ok(context) = self.flights.begin(Flight::Receive { slot }) else {
                unreachable!("each slot has a flight");
            };
            let (start, registration) = (self.staging.address(slot), self.staging.registration());
            // SAFETY: the slot belongs to the provider until this flight has ended, and is
            // `SLOT_BYTES` long; the context belongs to this flight alone.
            let posted = unsafe { self.port.receive(start, SLOT_BYTES, registration, context) };
            match posted {
                Ok(Posted::Yes) => {}
                Ok(Posted::Later) => {
                    self.flights.end(context);
                    self.unposted_slots.push(slot);
                    return Ok(());
                }
                Err(error) => {
                    self.flights.end(context);
                    return Err(error);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::ids::ProcessId;
    use crate::ofi::pool::tests::pair;
    use crate::ofi::staging::RECEIVE_SLOTS;
    use crate::transport::Event;

    /// The receiver has no slot posted for a while, and gets all messages later.
    #[test]
    fn a_provider_without_room_for_receives_loses_no_message() {
        farside_testbed::needs!("fabric");
        for refusals in [1, 2, RECEIVE_SLOTS, 5 * RECEIVE_SLOTS] {
            let mut ends = pair();
            ends[1].port.refused_receives.set(refusals);
            let deadline = farside_testbed::deadline();
            let (mut sent, mut got, mut has_waited) = (0_u32, 0_u32, false);
            while got < 3 * RECEIVE_SLOTS as u32 {
                assert!(!farside_testbed::is_past(deadline), "{got} messages have arrived by the deadline");
                if sent < 3 * RECEIVE_SLOTS as u32
                    && ends[0].send(ProcessId::new(1), 4, &mut |out| out.copy_from_slice(&sent.to_ne_bytes())).is_ok()
                {
                    sent += 1;
                }
                ends.iter_mut().for_each(|end| {
                    end.progress();
                });
                has_waited |= ends[1].waits_for_room();
                while let Some(event) = ends[1].next_event() {
                    let message = got.to_ne_bytes().to_vec();
                    assert_eq!(event, Event::Message { from: ProcessId::new(0), message });
                    got += 1;
                }
            }
            // One call of `progress` takes in at most one message for each slot.
            assert!(has_waited || refusals < 5 * RECEIVE_SLOTS);
            assert_eq!(ends[1].port.refused_receives.get(), 0);
            ends[1].progress();
            assert!(ends[1].unposted_slots.is_empty() && !ends[1].waits_for_room());
        }
    }
}
