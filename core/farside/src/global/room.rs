//! The room of global memory: its state in processes and workers, its messages and its progress.

use std::sync::{Arc, Mutex, MutexGuard};

use farside_fabric::ProcessId;
use farside_fabric::clock::lock;

use super::movement::{MoveMessage, Movement};
use super::registration::OwnSegments;
use super::signal::{SignalMessage, SignalRequests, take_signal_message};
use super::space::KnownSegments;
use crate::Wire;
use crate::error::Result;
use crate::runtime::process::Process;
use crate::runtime::room::{Room, Seed, Served};
use crate::runtime::worker::Worker;

/// The state of the room in one process.
#[derive(Debug)]
pub(crate) struct GlobalRoom {
    /// The operations of this process.
    pub(super) movement: Movement,
    /// The ordinary memory that this process has registered.
    pub(super) own_segments: OwnSegments,
    signals: Mutex<SignalRequests>,
}

/// The state of the room in one worker.
#[derive(Debug, Default)]
pub(crate) struct WorkerGlobal {
    known: KnownSegments,
}

/// A message between the service threads of two processes.
#[derive(Debug, Wire)]
pub(crate) enum GlobalMessage {
    /// About an operation.
    Move(MoveMessage),
    /// About a signal.
    Signal(SignalMessage),
}

impl Room for GlobalRoom {
    const TAG: u8 = 3;
    type Message = GlobalMessage;
    type Local = WorkerGlobal;

    fn new(seed: &Seed<'_>) -> Self {
        let threads = seed.shape.callable_per_process() as usize;
        Self {
            movement: Movement::new(seed.id, threads),
            own_segments: OwnSegments::default(),
            signals: Mutex::default(),
        }
    }

    fn local(&self, _process: &Arc<Process>, _local: usize) -> WorkerGlobal {
        WorkerGlobal::default()
    }

    fn take(&self, process: &Arc<Process>, from: ProcessId, message: GlobalMessage) {
        match message {
            GlobalMessage::Move(message) => self.movement.take(process, from, message),
            GlobalMessage::Signal(message) => take_signal_message(process, from, message),
        }
    }

    fn lose(&self, process: &Process, lost: ProcessId) {
        self.movement.lose(process, lost);
    }

    fn serve(&self, process: &Arc<Process>) -> Served {
        self.movement.advance(process)
    }

    fn clean_up(&self, _process: &Process) -> bool {
        self.own_segments.sweep()
    }

    fn is_over(&self, worker: &Worker) -> Result<bool> {
        worker.movement_is_over()
    }
}

impl GlobalRoom {
    /// Returns the room's state in a process.
    #[inline(always)]
    pub(super) fn of(process: &Process) -> &Self {
        process.room()
    }

    /// Returns the signals under way in the memory of other processes.
    pub(super) fn signals(&self) -> MutexGuard<'_, SignalRequests> {
        lock(&self.signals)
    }
}

impl Worker {
    /// The segments that this worker has used.
    pub(super) fn known_segments(&self) -> &KnownSegments {
        &self.room::<GlobalRoom>().known
    }
}
