//! The network of the transport: ordered packets between processes, and the news that a process is
//! gone.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard};

use farside_fabric::{FabricError, ProcessId};
use farside_sys::net::Waker;

/// The queues of all processes. Stands for a network.
#[derive(Debug)]
pub(crate) struct Wire {
    boxes: Vec<Mailbox>,
    packets_max: usize,
}

#[derive(Debug)]
struct Mailbox {
    state: Mutex<State>,
    waker: Waker,
}

#[derive(Debug, Default)]
struct State {
    arrived: VecDeque<(ProcessId, Arrival)>,
    /// How many packets of each sender there are.
    counts: HashMap<ProcessId, usize>,
    /// Senders that found no room, and are to be woken when there is.
    refused: BTreeSet<ProcessId>,
    closed: bool,
}

#[derive(Debug)]
pub(crate) enum Arrival {
    Packet(Vec<u8>),
    /// The sender is gone; nothing comes after this.
    Gone,
}

impl Wire {
    pub(crate) fn new(processes: u32, packets_max: usize) -> Result<Self, FabricError> {
        let failed = |cause| FabricError::System { doing: "making a waker", cause };
        let open = |_| Ok(Mailbox { state: Mutex::default(), waker: Waker::new().map_err(failed)? });
        Ok(Self { boxes: (0..processes).map(open).collect::<Result<_, FabricError>>()?, packets_max })
    }

    /// Sends a packet, or gives it back when there is no room. Packets for a process that is gone
    /// are dropped.
    pub(crate) fn send(&self, from: ProcessId, to: ProcessId, packet: Vec<u8>) -> Result<(), Vec<u8>> {
        let mut state = self.lock(to);
        if state.closed {
            return Ok(());
        }
        let count = state.counts.entry(from).or_default();
        if *count >= self.packets_max {
            state.refused.insert(from);
            return Err(packet);
        }
        *count += 1;
        state.arrived.push_back((from, Arrival::Packet(packet)));
        self.waker(to).wake();
        Ok(())
    }

    pub(crate) fn receive(&self, process: ProcessId) -> Option<(ProcessId, Arrival)> {
        let mut state = self.lock(process);
        let (from, arrival) = state.arrived.pop_front()?;
        if let Arrival::Packet(_) = arrival {
            state.counts.entry(from).and_modify(|count| *count -= 1);
        }
        if state.refused.remove(&from) {
            self.waker(from).wake();
        }
        Some((from, arrival))
    }

    /// Tells a process that another is gone, as far as it is concerned.
    pub(crate) fn part(&self, gone: ProcessId, told: ProcessId) {
        self.lock(told).arrived.push_back((gone, Arrival::Gone));
        self.waker(told).wake();
    }

    pub(crate) fn leave(&self, gone: ProcessId) {
        *self.lock(gone) = State { closed: true, ..State::default() };
        let all = (0..self.boxes.len() as u32).map(ProcessId::new);
        all.filter(|told| *told != gone).for_each(|told| self.part(gone, told));
    }

    /// Woken whenever something arrives for a process, or room for what it could not send.
    pub(crate) fn waker(&self, process: ProcessId) -> &Waker {
        &self.boxes[process.index()].waker
    }

    fn lock(&self, process: ProcessId) -> MutexGuard<'_, State> {
        self.boxes[process.index()].state.lock().expect("no thread panics under this lock")
    }
}
