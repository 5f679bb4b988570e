//! User memory of another process of this machine, accessed by a system call.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use farside_sys::process_memory;

use super::gate::Gate;
use crate::operation::{Carrier, FabricError, RemoteKey};

/// A withdrawal waits for at most one system call, so none may take long: some hundred
/// microseconds.
const PIECE_BYTES: usize = 1 << 20;

/// An attachment of user memory of a process of this machine.
///
/// After the process has died, another process may get its number. Its connection shows that it
/// lives: when the connection ends, the gate is closed. The kernel assigns numbers in sequence. It
/// would have to start thousands of processes between a death and its detection before a call could
/// reach the wrong process. That could only be a process of the same user.
#[derive(Debug)]
pub(crate) struct Nearby {
    pid: i32,
    base: u64,
    is_writable: bool,
    gate: Gate,
    /// True if the gate was closed because the process is gone.
    is_lost: AtomicBool,
    /// True if the system, which allowed the calls at first, has refused one since.
    is_refused: AtomicBool,
}

/// The reason why an access was not made.
#[derive(Debug)]
pub(crate) enum Refused {
    /// The system does not allow it: the owner must execute it.
    BySystem,
    With(FabricError),
}

impl Nearby {
    /// Attaches memory at an address of a process that has been seen to allow it.
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

    /// Admits no further access.
    pub(crate) fn close(&self) {
        self.gate.close();
    }

    /// Admits no further access because the process is gone.
    pub(crate) fn lose(&self) {
        self.is_lost.store(true, Ordering::Relaxed);
        self.gate.close();
    }

    /// Begins an access that takes its time.
    #[cfg(test)]
    pub(crate) fn enter(&self) -> Option<super::gate::Pass<'_>> {
        self.gate.enter()
    }

    /// Behaves as if the system refused every access.
    #[cfg(test)]
    pub(crate) fn refuse(&self) {
        self.is_refused.store(true, Ordering::Relaxed);
    }

    /// Returns whether no access is under way since the gate was closed.
    pub(crate) fn is_idle(&self) -> bool {
        self.gate.is_empty()
    }

    /// Returns whether the system has refused an access, so that the owner must execute them.
    pub(crate) fn is_refused(&self) -> bool {
        self.is_refused.load(Ordering::Relaxed)
    }

    /// Writes. The caller has checked the range. Wakes `transport` if a thread waits for the end of
    /// this access.
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
                // SAFETY: the owner has registered these bytes for writes by peers. It does not
                // release them before this holder has reported that nothing is under way, or its
                // connection has ended; and this access is inside the gate.
                unsafe { process_memory::write(self.pid, address, piece) }
            })?;
        }
        Ok(())
    }

    /// Reads. The caller has checked the range. Wakes `transport` if a thread waits for the end of
    /// this access.
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

    /// Makes one system call inside the gate. Returns the number of bytes copied.
    #[inline]
    fn access(
        &self,
        key: RemoteKey,
        offset: u64,
        transport: &Arc<dyn Carrier>,
        call: impl FnOnce(usize) -> std::io::Result<usize>,
    ) -> Result<usize, Refused> {
        // This comes before the access counts as under way, because nothing would report its end.
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
    FabricError::System { doing: "accessing a peer's user memory (is it mapped there?)", cause }
}
