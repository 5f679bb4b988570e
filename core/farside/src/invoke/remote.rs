//! The kinds of calls, as the receiver runs them: one trampoline each, generic over the types of
//! the call.
//!
//! Each checks that the record is as long as its types need before it reads them, and returns the
//! end of the record. For plain arguments the end is a constant distance from the beginning.

use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::with_exposed_provenance;

use super::inbox::panic_message;
use super::notify::Counted;
use super::outcome::{Outcome, settle};
use super::payload::BUFFER_LENGTH_BYTES;
use super::reply::{Reply, ReplyAddress, Returned, Status, answer};
use super::table::Remote;
use crate::runtime::collective::Finish;
use crate::runtime::worker::Worker;
use crate::wire::{Reader, Wire};

/// A function with its types, and the way to find it: by a pointer that travels as an operand, or
/// by its type alone.
pub(crate) trait Callee<F> {
    /// Returns the function that the operand names; `None` if it names none.
    fn find(worker: &Worker, operand: u32) -> Option<F>;
}

/// A function pointer: the operand is its offset in the program's text.
pub(crate) struct ByPointer;

/// A closure that captures nothing, known by its type: the operand is not used.
pub(crate) struct ByType;

macro_rules! by_pointer {
    ($pointer:ty) => {
        impl<A, R> Callee<$pointer> for ByPointer {
            #[inline(always)]
            fn find(worker: &Worker, operand: u32) -> Option<$pointer> {
                let address = with_exposed_provenance::<()>(worker.function_at(operand)?);
                // SAFETY: the operand was made from a pointer of this very type by the sender,
                // whose entry in the table is generic over the same types; the table of this binary
                // has that entry, and a function begins there.
                Some(unsafe { std::mem::transmute::<*const (), $pointer>(address) })
            }
        }
    };
}

by_pointer!(fn(&Worker, A) -> R);
by_pointer!(fn(&Worker, A, Reply<R>));
by_pointer!(fn(&Worker, A, &[u8]) -> R);
by_pointer!(fn(&Finish<'_>, A) -> R);

impl<F: Copy + 'static> Callee<F> for ByType {
    #[inline(always)]
    fn find(_: &Worker, _: u32) -> Option<F> {
        const { assert!(size_of::<F>() == 0, "a function known by its type has no value") };
        // SAFETY: `F` has no bytes, so this reads none. A value of it existed where the call was
        // made, in this same binary, and `RemoteFn` vouches that it captures nothing.
        Some(unsafe { std::ptr::NonNull::<F>::dangling().read() })
    }
}

/// The size of the largest number. Plain values up to this size are read with `A::read`, which may
/// check them.
const NUMBER_BYTES_MAX: usize = 16;

/// Reads the arguments of a record. Returns `None` unless they fill it.
///
/// # Safety
/// The contract of [`Trampoline`](super::table::Trampoline), where the sender wrote an `A`.
#[inline(always)]
pub(crate) unsafe fn read_arguments<A: Wire>(worker: &Worker, payload: *const u8, end: *const u8) -> Option<A> {
    let bytes = end.addr() - payload.addr();
    if A::PLAIN && bytes != const { size_of::<A>().next_multiple_of(8) } {
        return None;
    }
    if A::PLAIN && size_of::<A>() > NUMBER_BYTES_MAX {
        // This does what `A::read` does, without a result that could be an error. The compiler
        // would take such a result apart, and a function called by pointer would find its arguments
        // stored in other widths than it reads.
        // SAFETY: the record holds as many bytes as an `A` has, which the sender wrote, and a plain
        // value is a copy of its bytes.
        return Some(unsafe { payload.cast::<A>().read_unaligned() });
    }
    // SAFETY: by the contract the `bytes` bytes from `payload` on are readable and do not change.
    let mut reader = unsafe { Reader::new(payload, bytes) }.within(worker.process_handle());
    // SAFETY: the sender wrote an `A` here, and each record is run once.
    let arguments = unsafe { A::read(&mut reader) }.ok()?;
    // The padding that is left is shorter than a word.
    (A::PLAIN || reader.remaining() < 8).then_some(arguments)
}

/// Returns the end of a record whose arguments were read.
#[inline(always)]
pub(crate) fn after<A: Wire>(payload: *const u8, end: *const u8) -> *const u8 {
    if A::PLAIN { payload.wrapping_add(const { size_of::<A>().next_multiple_of(8) }) } else { end }
}

/// Runs a function and drops its result, unless it is an error.
pub(crate) struct Call<K, F, A, R>(PhantomData<(K, F, A, R)>);

impl<K: Callee<F>, F: Fn(&Worker, A) -> R, A: Wire, R: Outcome> Remote for Call<K, F, A, R> {
    unsafe fn run(worker: &Worker, payload: *const u8, end: *const u8, operand: u32) -> *const u8 {
        let Some(function) = K::find(worker, operand) else { return std::ptr::null() };
        // SAFETY: the contract of `run` includes that of `read_arguments`; the sender wrote an `A`
        // for this trampoline.
        let Some(arguments) = (unsafe { read_arguments::<A>(worker, payload, end) }) else { return std::ptr::null() };
        settle(function(worker, arguments));
        after::<A>(payload, end)
    }
}

/// Runs a function, and then counts down a latch of the caller or signals a word.
pub(crate) struct CallNotified<K, F, A, R, N>(PhantomData<(K, F, A, R, N)>);

impl<K: Callee<F>, F: Fn(&Worker, A) -> R, A: Wire, R: Outcome, N: Counted> Remote for CallNotified<K, F, A, R, N> {
    unsafe fn run(worker: &Worker, payload: *const u8, end: *const u8, operand: u32) -> *const u8 {
        let Some(function) = K::find(worker, operand) else { return std::ptr::null() };
        // SAFETY: the contract of `run` includes that of `read_arguments`; the sender wrote such a
        // pair for this trampoline.
        let read = unsafe { read_arguments::<(N, A)>(worker, payload, end) };
        let Some((counted, arguments)) = read else { return std::ptr::null() };
        settle(function(worker, arguments));
        counted.count_on(worker);
        after::<(N, A)>(payload, end)
    }
}

/// Runs a function and answers with its result.
pub(crate) struct CallReturn<K, F, A, R>(PhantomData<(K, F, A, R)>);

impl<K: Callee<F>, F: Fn(&Worker, A) -> R, A: Wire, R: Wire> Remote for CallReturn<K, F, A, R> {
    unsafe fn run(worker: &Worker, payload: *const u8, end: *const u8, operand: u32) -> *const u8 {
        let Some(function) = K::find(worker, operand) else { return std::ptr::null() };
        // SAFETY: the contract of `run` includes that of `read_arguments`; the sender wrote such a
        // pair for this trampoline.
        let read = unsafe { read_arguments::<(ReplyAddress, A)>(worker, payload, end) };
        let Some((reply, arguments)) = read else { return std::ptr::null() };
        let process = worker.process_handle();
        match catch_unwind(AssertUnwindSafe(|| function(worker, arguments))) {
            Ok(result) => answer(process, reply, Status::Done, Returned(result)),
            Err(panic) => answer(process, reply, Status::Panicked, panic_message(&*panic).as_bytes()),
        }
        after::<(ReplyAddress, A)>(payload, end)
    }
}

/// Runs a function that gets the duty to answer.
pub(crate) struct CallWithReply<K, F, A, R>(PhantomData<(K, F, A, R)>);

impl<K: Callee<F>, F: Fn(&Worker, A, Reply<R>), A: Wire, R: Wire> Remote for CallWithReply<K, F, A, R> {
    unsafe fn run(worker: &Worker, payload: *const u8, end: *const u8, operand: u32) -> *const u8 {
        let Some(function) = K::find(worker, operand) else { return std::ptr::null() };
        // SAFETY: the contract of `run` includes that of `read_arguments`; the sender wrote such a
        // pair for this trampoline.
        let read = unsafe { read_arguments::<(ReplyAddress, A)>(worker, payload, end) };
        let Some((address, arguments)) = read else { return std::ptr::null() };
        let process = worker.process_handle();
        let reply = Reply::new(process.clone(), address);
        // A panic drops the reply, which tells the caller. A reply that was handed on before the
        // panic is answered by its new owner.
        let _ = catch_unwind(AssertUnwindSafe(|| function(worker, arguments, reply)));
        after::<(ReplyAddress, A)>(payload, end)
    }
}

/// Runs a function on a buffer that lies in the record, and counts down if it is asked to.
pub(crate) struct CallBuffer<K, F, A, R, N>(PhantomData<(K, F, A, R, N)>);

impl<K, F, A: Wire, R: Outcome, N: Counted> Remote for CallBuffer<K, F, A, R, N>
where
    K: Callee<F>,
    F: Fn(&Worker, A, &[u8]) -> R,
{
    unsafe fn run(worker: &Worker, payload: *const u8, end: *const u8, operand: u32) -> *const u8 {
        let Some(function) = K::find(worker, operand) else { return std::ptr::null() };
        let bytes = end.addr() - payload.addr();
        // SAFETY: by the contract the `bytes` bytes from `payload` on are readable and do not
        // change.
        let mut reader = unsafe { Reader::new(payload, bytes) };
        // SAFETY: any bytes are a valid `u64`.
        let Ok(length) = (unsafe { u64::read(&mut reader) }) else { return std::ptr::null() };
        let length = length as usize;
        let Some(padded) = length.checked_next_multiple_of(8) else { return std::ptr::null() };
        let Ok(buffer) = reader.take(padded) else { return std::ptr::null() };
        let arguments_at = payload.wrapping_add(BUFFER_LENGTH_BYTES + padded);
        // SAFETY: the contract of `run` includes that of `read_arguments`; the sender wrote an
        // `Option<N>` and an `A` behind the buffer.
        let read = unsafe { read_arguments::<(Option<N>, A)>(worker, arguments_at, end) };
        let Some((counted, arguments)) = read else { return std::ptr::null() };
        // SAFETY: `take` found `length` bytes inside the record, which belongs to its receiver
        // until it is credited: no sender writes there, and ring memory is not addressable by put.
        // The borrow ends with the call.
        let buffer = unsafe { std::slice::from_raw_parts(buffer, length) };
        settle(function(worker, arguments, buffer));
        counted.count_on(worker);
        after::<(Option<N>, A)>(arguments_at, end)
    }
}

/// A closure that captures nothing, known to all processes by its type. Made by
/// [`remote!`](crate::remote).
#[derive(Clone, Copy, Debug)]
pub struct RemoteFn<F>(PhantomData<F>);

impl<F: Copy + 'static> RemoteFn<F> {
    #[doc(hidden)]
    #[must_use]
    pub const fn __new(_: MacroToken, _: F) -> Self {
        Self(PhantomData)
    }
}

/// Proof that a [`RemoteFn`] comes from the macro, which ensures that the closure captures nothing.
#[doc(hidden)]
#[derive(Debug)]
pub struct MacroToken(());

impl MacroToken {
    /// # Safety
    /// The closure captures nothing, not even values without size.
    #[doc(hidden)]
    #[must_use]
    pub const unsafe fn __new() -> Self {
        Self(())
    }
}

/// Names a closure by its type alone, for [`call_remote`](crate::To::call_remote). That is half a
/// nanosecond cheaper than a function pointer, and the receiver can inline the body.
///
/// The closure is written in place: `|there, arguments| ...`, with the arguments' type if the
/// compiler asks for it. A capture is an error at `cargo check`.
///
/// ```no_run
/// # use farside::prelude::*;
/// # fn example(me: &Worker) -> farside::Result<()> {
/// me.to(me.neighbor(1)).call_remote(
///     (1_u64, 2_u64),
///     farside::remote!(|there, (a, b)| println!("{} {}", there.id(), a + b)),
/// )?;
/// # Ok(())
/// # }
/// ```
#[macro_export]
macro_rules! remote {
    (|$there:tt, $arguments:tt $(: $type:ty)?| $body:expr) => {
        $crate::RemoteFn::__new(
            // SAFETY: a constant sees no locals, so the closure captures nothing.
            unsafe { $crate::__private::MacroToken::__new() },
            const { |$there: &$crate::Worker, $arguments $(: $type)?| $body },
        )
    };
}
