//! Registered memory for the data of puts and gets, on providers that require registered buffers.
//!
//! Registering a buffer takes system calls and pins its pages. A cache of registrations by address
//! would be unsound: the heap reuses addresses, and libfabric would not know that other memory is
//! there. Buffers that are not too long are therefore copied to or from a registered slot. If no
//! slot is free, the buffer is registered separately, and counted.

use std::sync::Arc;

use farside_sys::shm::SharedMemory;

use super::port::{Port, Registration, Rights, random_key};
use crate::transport::FabricError;

/// The longest buffer that is copied. Beyond it, a copy takes longer than a registration.
pub(super) const SLOT_BYTES: usize = 64 << 10;
/// Together 2 MiB: a quarter of what may be locked under the usual default limit.
const SLOTS: usize = 32;

/// The slots. They are created on first use.
#[derive(Debug)]
pub(super) struct Pool {
    slots: Option<Slots>,
    refused: bool,
    free: Vec<usize>,
    /// Number of buffers that were registered separately.
    passed_by: u64,
}

#[derive(Debug)]
struct Slots {
    memory: Arc<SharedMemory>,
    registration: Registration,
}

impl Pool {
    pub(super) fn new() -> Self {
        Self { slots: None, refused: false, free: (0..SLOTS).collect(), passed_by: 0 }
    }

    /// Takes a slot for a buffer of `bytes` bytes; `None` if the buffer must be registered
    /// separately.
    pub(super) fn take(&mut self, port: &mut Port, bytes: usize) -> Option<usize> {
        let slot = if bytes <= SLOT_BYTES && self.is_there(port) { self.free.pop() } else { None };
        self.passed_by += u64::from(slot.is_none());
        slot
    }

    /// Returns an unused slot.
    pub(super) fn give_back(&mut self, slot: usize) {
        debug_assert!(!self.free.contains(&slot));
        self.free.push(slot);
    }

    /// The address and registration of a slot that was taken.
    ///
    /// # Panics
    /// If no slot was taken.
    pub(super) fn slot(&self, slot: usize) -> (*mut u8, Registration) {
        let slots = self.slots.as_ref().expect("a slot was taken");
        assert!(slot < SLOTS, "the slot exists");
        (slots.memory.base().as_ptr().wrapping_add(slot * SLOT_BYTES), slots.registration)
    }

    /// Number of buffers that found no slot, or were too long for one.
    pub(super) fn passed_by(&self) -> u64 {
        self.passed_by
    }

    /// Creates the slots if necessary. Returns whether they exist; if memory is lacking, there is
    /// no pool.
    fn is_there(&mut self, port: &mut Port) -> bool {
        if self.slots.is_none() && !self.refused {
            self.slots = Slots::new(port).ok();
            self.refused = self.slots.is_none();
        }
        self.slots.is_some()
    }
}

impl Slots {
    fn new(port: &mut Port) -> Result<Self, FabricError> {
        let bytes = SLOTS * SLOT_BYTES;
        let memory = Arc::new(SharedMemory::create("farside-pool", bytes)?);
        // SAFETY: `State` drops the port before the pool, in the order of its fields.
        let registration = unsafe { port.register(memory.base().as_ptr(), bytes, random_key()?, Rights::Local) }?;
        Ok(Self { memory, registration })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::ids::ProcessId;
    use crate::ofi::library::Api;
    use crate::ofi::provider;
    use crate::ofi::state::{OPERATIONS_MAX, State};
    use crate::transport::{Completion, Operation, Outcome, RemoteKey};

    pub(in crate::ofi) const BYTES: usize = 4 << 20;

    /// Creates two endpoints in one thread, as if their provider required registered buffers.
    pub(in crate::ofi) fn pair() -> [State; 2] {
        let open = |number| {
            let api = Api::open().unwrap();
            let (info, provider) = provider::choose(api, Some("tcp"), Some("127.0.0.1"), None).unwrap();
            let mut port = Port::open(api, info, provider, 2).unwrap();
            port.pretend_to_register_local();
            let address = port.address().unwrap();
            let memory = Arc::new(SharedMemory::create("test", BYTES).unwrap());
            (address, State::new(port, ProcessId::new(number), 2, memory, BYTES).unwrap())
        };
        let [(here, mut one), (there, mut two)] = [0, 1].map(open);
        for state in [&mut one, &mut two] {
            state.introduce(&[here.clone(), there.clone()], 7).unwrap();
        }
        [one, two]
    }

    pub(in crate::ofi) fn finish(ends: &mut [State; 2], completion: &Completion) -> Outcome {
        let deadline = farside_testbed::deadline();
        loop {
            if let Some(outcome) = completion.try_take() {
                return outcome.unwrap();
            }
            assert!(!farside_testbed::is_past(deadline), "the operation has not ended by the deadline");
            ends.iter_mut().for_each(|end| {
                end.progress();
            });
        }
    }

    #[test]
    fn buffers_go_through_the_pool_and_long_ones_past_it() {
        farside_testbed::needs!("fabric");
        let mut ends = pair();
        let key = RemoteKey::starter(ProcessId::new(1), BYTES as u64);
        let attached = ends[0].attach(key).unwrap();
        finish(&mut ends, &attached);
        let mut direct = 0;
        for (round, bytes) in [9, 100, SLOT_BYTES - 1, SLOT_BYTES, SLOT_BYTES + 1, 1 << 20].into_iter().enumerate() {
            let data: Vec<u8> = (0..bytes).map(|at| (at * 7 + round) as u8).collect();
            let offset = 3 + round as u64;
            let put = ends[0].post(key, Operation::Put { offset, data: data.clone() }).unwrap();
            assert_eq!(finish(&mut ends, &put), Outcome::Put(data.clone()), "the buffer comes back");
            let get = ends[0].post(key, Operation::get(offset, bytes)).unwrap();
            assert!(finish(&mut ends, &get) == Outcome::Got(data), "{bytes} bytes come back as they were put");
            direct += 2 * u64::from(bytes > SLOT_BYTES);
            assert_eq!(ends[0].passed_pool(), direct);
        }
    }

    #[test]
    fn a_pool_that_is_empty_is_passed_by_and_fills_again() {
        farside_testbed::needs!("fabric");
        let mut ends = pair();
        let key = RemoteKey::starter(ProcessId::new(1), BYTES as u64);
        let attached = ends[0].attach(key).unwrap();
        finish(&mut ends, &attached);
        for round in 1..=2 {
            let puts: Vec<Completion> = (0..OPERATIONS_MAX as u64)
                .map(|number| {
                    ends[0].post(key, Operation::Put { offset: 64 * number, data: vec![number as u8; 64] }).unwrap()
                })
                .collect();
            for put in &puts {
                finish(&mut ends, put);
            }
            assert_eq!(ends[0].passed_pool(), round * (OPERATIONS_MAX - SLOTS) as u64);
        }
        let get = ends[0].post(key, Operation::get(0, 64 * OPERATIONS_MAX)).unwrap();
        let wanted: Vec<u8> = (0..OPERATIONS_MAX as u8).flat_map(|number| [number; 64]).collect();
        assert!(finish(&mut ends, &get) == Outcome::Got(wanted));
    }
}
