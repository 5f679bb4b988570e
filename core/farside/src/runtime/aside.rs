//! [`Aside`]: a helper thread of a room, apart from the workers. The room joins it at its end.

use std::sync::Arc;
use std::thread::JoinHandle;

use farside_fabric::clock::SeatEnd;

use crate::error::{Error, Result};
use crate::runtime::process::Process;

/// A thread of a room.
pub(crate) struct Aside {
    thread: JoinHandle<()>,
    end: SeatEnd,
}

impl Aside {
    /// Starts a thread.
    ///
    /// # Errors
    /// [`Error::System`].
    pub(crate) fn start(
        process: &Arc<Process>,
        name: &str,
        run: impl FnOnce(&Arc<Process>) + Send + 'static,
    ) -> Result<Self> {
        let seat = process.clock().seat();
        let end = seat.end();
        let process = process.clone();
        let started = std::thread::Builder::new().name(name.to_owned()).spawn(move || seat.take(|| run(&process)));
        let thread = started.map_err(|cause| Error::System { doing: "starting a thread beside the workers", cause })?;
        Ok(Self { thread, end })
    }

    /// Returns whether the thread has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for the end of the thread.
    pub(crate) fn join(self) {
        self.end.wait();
        if let Err(panic) = self.thread.join() {
            std::panic::resume_unwind(panic);
        }
    }
}
