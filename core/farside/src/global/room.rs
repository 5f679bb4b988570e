//! The room of global memory: its state in processes and workers, its messages and its progress.

use std::sync::{Arc, Mutex, MutexGuard};

use farside_fabric::ProcessId;
use farside_fabric::clock::lock;

use super::movement::{MoveMessage, Movement};
use super::registration::OwnSegments;
use super::signal::{SignalMessage, SignalRequests};
use super::space::KnownSegments;
use crate::Wire;
use crate::error::Result;
use crate::runtime::process::Process;
use crate::runtime::room::{Room, Seed, Served};
use crate::runtime::worker::Worker;

/// The state of the room in one process.
#[derive(Debug)]
pub(crate) struct GlobalRoom {
    movement: Movement,
    own_segments: OwnSegments,
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
            GlobalMessage::Move(message) => process.take_move_message(from, message),
            GlobalMessage::Signal(message) => process.take_signal_message(from, message),
        }
    }

    fn lose(&self, process: &Process, lost: ProcessId) {
        process.lose_movement(lost);
    }

    fn serve(&self, process: &Arc<Process>) -> Served {
        process.advance_movement()
    }

    fn clean_up(&self, _process: &Process) -> bool {
        self.own_segments.sweep()
    }

    fn is_over(&self, worker: &Worker) -> Result<bool> {
        worker.movement_is_over()
    }
}

impl Process {
    /// The operations of this process.
    #[inline]
    pub(super) fn movement(&self) -> &Movement {
        &self.room::<GlobalRoom>().movement
    }

    /// The ordinary memory that this process has registered.
    pub(super) fn own_segments(&self) -> &OwnSegments {
        &self.room::<GlobalRoom>().own_segments
    }

    /// Signals under way in the memory of other processes.
    pub(super) fn signals(&self) -> MutexGuard<'_, SignalRequests> {
        lock(&self.room::<GlobalRoom>().signals)
    }
}

impl Worker {
    /// The segments that this worker has used.
    pub(super) fn known_segments(&self) -> &KnownSegments {
        &self.room::<GlobalRoom>().known
    }
}
