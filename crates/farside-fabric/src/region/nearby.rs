//! Private memory of another process of this machine, reached by a system call.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use farside_sys::process_memory;

use super::gate::Gate;
use crate::operation::{Carrier, FabricError, RemoteKey};

/// A revocation waits for one system call at most, so none is to take long: some hundred microseconds.
const PIECE_BYTES: usize = 1 << 20;

/// An attachment of private memory to a process of this machine.
///
/// The number of a process may be another's when it has died. That it lives is known by its connection: when that ends, the gate is
/// closed. The kernel gives numbers out in turn, so that it must have started thousands of processes between a death and the news
/// of it before a call could go astray; and then to a process of the same user only.
#[derive(Debug)]
pub(crate) struct Nearby {
    pid: i32,
    base: u64,
    is_writable: bool,
    gate: Gate,
    /// It is closed since the process is gone.
    is_lost: AtomicBool,
    /// The system allowed it once, and does not any more.
    is_refused: AtomicBool,
}

/// Why an access was not made.
#[derive(Debug)]
pub(crate) enum Refused {
    /// The system does not allow it: the owner is to be asked.
    BySystem,
    With(FabricError),
}

impl Nearby {
    /// Memory at an address of a process that was seen to allow it.
    pub(crate) fn new(pid: i32, base: u64, is_writable: bool) -> Arc<Self> {
        Arc::new(Self {
            pid,
            base,
            is_writable,
            gate: Gate::default(),
            is_lost: AtomicBool::new(false),
            is_refused: AtomicBool::new(false),
        })
    }

    /// Lets no access begin any more.
    pub(crate) fn close(&self) {
        self.gate.close();
    }

    /// The same since the process is gone.
    pub(crate) fn lose(&self) {
        self.is_lost.store(true, Ordering::Relaxed);
        self.gate.close();
    }

    /// An access that takes its time.
    #[cfg(test)]
    pub(crate) fn enter(&self) -> Option<super::gate::Pass<'_>> {
        self.gate.enter()
    }

    /// The system allows nothing any more.
    #[cfg(test)]
    pub(crate) fn refuse(&self) {
        self.is_refused.store(true, Ordering::Relaxed);
    }

    /// No access is under way, since it was closed.
    pub(crate) fn is_idle(&self) -> bool {
        self.gate.is_empty()
    }

    /// The system has refused an access, so that the owner is asked.
    pub(crate) fn is_refused(&self) -> bool {
        self.is_refused.load(Ordering::Relaxed)
    }

    /// Writes. The caller has checked the range. `transport` is woken if somebody waits for this to end.
    pub(crate) fn put(
        &self,
        key: RemoteKey,
        offset: u64,
        data: &[u8],
        transport: &Arc<dyn Carrier>,
    ) -> Result<(), Refused> {
        if !self.is_writable {
            return Err(Refused::With(FabricError::ReadOnly { key }));
        }
        let mut at = 0;
        while at < data.len() {
            let piece = &data[at..data.len().min(at + PIECE_BYTES)];
            at += self.access(key, offset + at as u64, transport, |address| {
                // SAFETY: the owner has registered these bytes for being written by peers, and does not let them go before this holder has
                // said that nothing is under way, or its connection has ended: we are inside of the gate.
                unsafe { process_memory::write(self.pid, address, piece) }
            })?;
        }
        Ok(())
    }

    /// Reads. As [`put`](Self::put).
    pub(crate) fn get(
        &self,
        key: RemoteKey,
        offset: u64,
        data: &mut [u8],
        transport: &Arc<dyn Carrier>,
    ) -> Result<(), Refused> {
        let (bytes, mut at) = (data.len(), 0);
        while at < bytes {
            let piece = &mut data[at..bytes.min(at + PIECE_BYTES)];
            at += self
                .access(key, offset + at as u64, transport, |address| process_memory::read(self.pid, address, piece))?;
        }
        Ok(())
    }

    /// One system call, inside of the gate. Returns how many bytes it has copied.
    #[inline]
    fn access(
        &self,
        key: RemoteKey,
        offset: u64,
        transport: &Arc<dyn Carrier>,
        call: impl FnOnce(usize) -> std::io::Result<usize>,
    ) -> Result<usize, Refused> {
        // Before it counts as under way: who has to hear of its end would not.
        if self.is_refused() {
            return Err(Refused::BySystem);
        }
        let Some(pass) = self.gate.enter() else {
            let process = key.process;
            let is_lost = self.is_lost.load(Ordering::Relaxed);
            return Err(Refused::With(if is_lost {
                FabricError::Disconnected { process }
            } else {
                FabricError::StaleKey { key }
            }));
        };
        let copied = call(self.base.wrapping_add(offset) as usize);
        if pass.leave() {
            transport.wake();
        }
        match copied {
            Ok(0) => Err(Refused::With(failed(ErrorKind::WriteZero.into()))),
            Ok(bytes) => Ok(bytes),
            Err(error) if process_memory::is_refusal(&error) => {
                self.is_refused.store(true, Ordering::Relaxed);
                Err(Refused::BySystem)
            }
            Err(error) if process_memory::is_gone(&error) => {
                Err(Refused::With(FabricError::Disconnected { process: key.process }))
            }
            Err(error) => Err(Refused::With(failed(error))),
        }
    }
}

fn failed(cause: std::io::Error) -> FabricError {
    FabricError::System { doing: "reaching a peer's private memory (is it mapped there?)", cause }
}
