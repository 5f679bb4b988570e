//! Calls whose buffer the receiver reads from the sender's memory, and calls whose result goes into
//! registered memory.

use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::fetch::fetch;
use super::result_place::{Content, ResultPlace, store};
use crate::Wire;
use crate::invoke::inbox::panic_message;
use crate::invoke::notify::{Counted, LatchAddress};
use crate::invoke::outcome::{Outcome, settle};
use crate::invoke::remote::{Callee, after, read_arguments};
use crate::invoke::reply::{ReplyAddress, Returned, Status, answer};
use crate::invoke::table::Remote;
use crate::memory::Extent;
use crate::runtime::worker::Worker;
use crate::wire;
use farside_launch::kill_point::KillPoint;

/// A buffer of the sender that the receiver is to read.
#[derive(Clone, Copy, Debug, Wire)]
pub(crate) struct LentBuffer {
    pub(crate) memory: Extent,
    /// The reply that tells the sender that the buffer was read.
    pub(crate) read: ReplyAddress,
    /// A latch to count down when the buffer was read.
    pub(crate) on_read: Option<LatchAddress>,
    /// True if later calls need not wait for the buffer.
    pub(crate) is_unordered: bool,
}

/// Reads a buffer from the sender's memory and runs a function on it.
pub(crate) struct CallBufferGet<K, F, A, R, N>(PhantomData<(K, F, A, R, N)>);

impl<K, F, A, R: Outcome, N: Counted> Remote for CallBufferGet<K, F, A, R, N>
where
    K: Callee<F>,
    F: Fn(&Worker, A, &[u8]) -> R + 'static,
    A: Wire + 'static,
{
    unsafe fn run(worker: &Worker, payload: *const u8, end: *const u8, operand: u32) -> *const u8 {
        let Some(function) = K::find(worker, operand) else { return std::ptr::null() };
        // SAFETY: the contract of `run` includes that of `read_arguments`; the sender wrote such a
        // triple for this trampoline.
        let read = unsafe { read_arguments::<(LentBuffer, Option<N>, A)>(worker, payload, end) };
        let Some((lent, counted, arguments)) = read else { return std::ptr::null() };
        worker.process_handle().kill_point(KillPoint::BufferFound);
        fetch(worker, lent.memory, lent.is_unordered, move |worker, buffer| {
            let process = worker.process_handle();
            let Ok(buffer) = buffer else {
                // The buffer's owner has died, or its fabric failed: a call without its buffer does
                // not run.
                return answer(process, lent.read, Status::Dropped, [].as_slice());
            };
            answer(process, lent.read, Status::Done, Returned(()));
            lent.on_read.count_on(worker);
            process.kill_point(KillPoint::BufferRead);
            settle(function(worker, arguments, &buffer));
            counted.count_on(worker);
        });
        after::<(LentBuffer, Option<N>, A)>(payload, end)
    }
}

/// Runs a function and puts its result into registered memory.
pub(crate) struct CallInto<K, F, A, R, N>(PhantomData<(K, F, A, R, N)>);

impl<K, F, A, R, N: Counted> Remote for CallInto<K, F, A, R, N>
where
    K: Callee<F>,
    F: Fn(&Worker, A) -> R,
    A: Wire,
    R: Wire,
{
    unsafe fn run(worker: &Worker, payload: *const u8, end: *const u8, operand: u32) -> *const u8 {
        let Some(function) = K::find(worker, operand) else { return std::ptr::null() };
        // SAFETY: the contract of `run` includes that of `read_arguments`; the sender wrote such a
        // triple for this trampoline.
        let read = unsafe { read_arguments::<(ResultPlace<R>, Option<N>, A)>(worker, payload, end) };
        let Some((place, counted, arguments)) = read else { return std::ptr::null() };
        let content = match catch_unwind(AssertUnwindSafe(|| function(worker, arguments))) {
            Ok(result) => Content { status: Status::Done, bytes: wire::encode(&result, Vec::new()) },
            Err(panic) => Content { status: Status::Panicked, bytes: panic_message(&*panic).into_bytes() },
        };
        store(worker.process_handle(), &place, content, counted);
        after::<(ResultPlace<R>, Option<N>, A)>(payload, end)
    }
}
