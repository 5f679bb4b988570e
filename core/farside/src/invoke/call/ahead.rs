//! The call that goes ahead of another in a job whose accesses are observed. It carries the
//! sender's knowledge of the accesses of others.

use farside_fabric::WorkerId;
use farside_fabric::ring::record_bytes;

use crate::error::Result;
use crate::invoke::outbox::{Dispatch, Keeping, Outbox};
use crate::invoke::payload::{Arguments, Payload};
use crate::invoke::remote::{ByPointer, Call};
use crate::runtime::observer::Known;
use crate::runtime::pool::Role;
use crate::runtime::worker::Worker;

/// The call that goes ahead.
pub(super) struct Ahead {
    how: Dispatch,
    known: Arguments<Known>,
}

/// Returns what must travel ahead of a call to worker `to`, and the size of its record. Returns
/// nothing if accesses are not observed. Neither is anything sent where the receiver could not take
/// it in, or where its record would exceed `max`: the accesses of `me` then end for all workers.
pub(super) fn of(me: &Worker, to: WorkerId, max: usize) -> (Option<Ahead>, usize) {
    let process = me.process_handle();
    let Some(observer) = process.accesses.observer() else { return (None, 0) };
    let ahead = dispatch(me, to).and_then(|how| {
        let known = Arguments(observer.tell(me.thread_index()));
        let bytes = record_bytes(known.bytes());
        (bytes <= max).then_some((Some(Ahead { how, known }), bytes))
    });
    ahead.unwrap_or_else(|| {
        process.accesses.end();
        (None, 0)
    })
}

/// Returns `None` if the receiver of a call may not be the thread that runs it, or does not know
/// [`hear`].
fn dispatch(me: &Worker, to: WorkerId) -> Option<Dispatch> {
    let process = me.process_handle();
    let (there, local) = process.job.place_of(to)?;
    let runs_it = process.job.is_alike(there) && Role::of(local, process.settings()) == Role::Own;
    let function: fn(&Worker, Known) = hear;
    let entry = process.calls.table.entries().number_of::<Call<ByPointer, fn(&Worker, Known), Known, ()>>().ok()?;
    let operand = process.calls.table.offset_of(function as usize).ok()?;
    runs_it.then_some(Dispatch { entry, operand, batch_bytes: 0 })
}

impl Ahead {
    /// # Errors
    /// [`Error::Full`](crate::Error::Full) if there is no room and the record may not be staged;
    /// [`Error::PeerLost`](crate::Error::PeerLost); the failure of the transport.
    pub(super) fn send(self, me: &Worker, outbox: &mut Outbox, keeping: Keeping) -> Result<()> {
        outbox.send_slowly(me.process_handle(), self.how, keeping, self.known).map_err(|(error, _)| error)?;
        outbox.leave_out_call();
        Ok(())
    }
}

fn hear(there: &Worker, known: Known) {
    there.collectives.borrow_mut().leave_out_executed();
    if let Some(observer) = there.process_handle().accesses.observer() {
        observer.hear(there.thread_index(), &known);
    }
}
