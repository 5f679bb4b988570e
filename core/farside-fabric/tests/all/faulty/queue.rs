//! A queue with a fault.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use farside_fabric::queue::{Frontier, QueueLimits, Span, Transfer, TransferKind, TransferQueue};
use farside_fabric::{FabricError, LocalRegion, RemoteKey};

use super::{Fault, lock};

#[derive(Debug)]
pub(super) struct FaultyQueue {
    fault: Fault,
    sound: Box<dyn TransferQueue>,
    frontier: Arc<Frontier>,
    /// The operations that [`Fault::SignalsEarly`] has not posted.
    put_off: Mutex<VecDeque<PutOff>>,
}

#[derive(Debug)]
struct PutOff {
    kind: TransferKind,
    local: LocalRegion,
    offset: u64,
    bytes: usize,
    remote: RemoteKey,
    remote_offset: u64,
    signal: Option<u64>,
}

impl FaultyQueue {
    /// A queue with this fault, if it is one of queues.
    pub(super) fn around(sound: Box<dyn TransferQueue>, fault: Fault) -> Option<Box<dyn TransferQueue>> {
        const OF_QUEUES: [Fault; 5] = [
            Fault::LeavesOperationsOpen,
            Fault::LosesWhenFull,
            Fault::PutsTooMuch,
            Fault::SignalsEarly,
            Fault::TakesOverruns,
        ];
        let faulty = || Self { fault, sound, frontier: Arc::default(), put_off: Mutex::default() };
        OF_QUEUES.contains(&fault).then(|| Box::new(faulty()) as Box<dyn TransferQueue>)
    }

    fn post_put_off(&self) -> Result<(), FabricError> {
        let mut put_off = lock(&self.put_off);
        while let Some(next) = put_off.front() {
            let local = Span::new(&next.local, next.offset, next.bytes)?;
            let PutOff { kind, remote, remote_offset, signal, .. } = *next;
            match self.sound.post(&Transfer { kind, local, remote, remote_offset }, signal) {
                Err(FabricError::QueueFull { .. }) => break,
                posted => posted?,
            }
            put_off.pop_front();
        }
        Ok(())
    }
}

impl TransferQueue for FaultyQueue {
    fn limits(&self) -> QueueLimits {
        self.sound.limits()
    }

    fn frontier(&self) -> &Arc<Frontier> {
        &self.frontier
    }

    fn post(&self, transfer: &Transfer<'_>, signal: Option<u64>) -> Result<(), FabricError> {
        let local = transfer.local;
        match self.fault {
            Fault::SignalsEarly => {
                lock(&self.put_off).push_back(PutOff {
                    kind: transfer.kind,
                    local: local.region().clone(),
                    offset: local.offset(),
                    bytes: local.bytes(),
                    remote: transfer.remote,
                    remote_offset: transfer.remote_offset,
                    signal,
                });
                signal.iter().for_each(|number| self.frontier.raise(*number));
                Ok(())
            }
            Fault::PutsTooMuch => {
                let longer = Span::new(local.region(), local.offset(), local.bytes() + 1)?;
                self.sound.post(&Transfer { local: longer, ..*transfer }, signal)
            }
            fault => match self.sound.post(transfer, signal) {
                Err(FabricError::QueueFull { .. }) if fault == Fault::LosesWhenFull => Ok(()),
                Err(FabricError::QueueOverrun { .. }) if fault == Fault::TakesOverruns => Ok(()),
                Err(FabricError::Disconnected { .. }) if fault == Fault::LeavesOperationsOpen => Ok(()),
                posted => posted,
            },
        }
    }

    fn signal(&self, number: u64) -> Result<(), FabricError> {
        if self.fault == Fault::SignalsEarly {
            self.frontier.raise(number);
            return Ok(());
        }
        self.sound.signal(number)
    }

    fn progress(&self) -> Result<(), FabricError> {
        let progressed = self.post_put_off().and_then(|()| self.sound.progress());
        if !self.sound.frontier().has_failed() {
            self.frontier.raise(self.sound.frontier().completed());
        }
        if self.fault == Fault::LeavesOperationsOpen { Ok(()) } else { progressed }
    }

    fn quarantined(&self) -> usize {
        0
    }
}
