//! Functions that a program has registered by name, for callers in programs that were built
//! separately.
//!
//! Programs that were built separately share no table, and each has its own layout of types. So a
//! name travels, with a description of the types, both as hashes that depend on the source alone.
//! The record has the entry [`NAMED`], which is in no table. The receiver copies and checks the
//! record before it trusts anything in it.
//!
//! A record is a [`Head`] and the arguments, each as [`wire::encode`] writes it.
//!
//! The library registers its own functions under names that begin with `farside/`.

use std::collections::HashMap;
use std::fmt;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use farside_fabric::ring::Header;
use farside_sys::racy;

use super::inbox::panic_message;
use super::notify::{Counted, LatchAddress};
use super::payload::Payload;
use super::reply::{ReplyAddress, Status, answer};
use crate::error::{Error, NameRefusal, Source};
use crate::runtime::worker::Worker;
use crate::wire::{self, Decoder, Schema, Wire, WireError, hash_name};

/// The entry of records that name their function. It lies beyond the end of every table.
pub(crate) const NAMED: u16 = Header::ENTRY_COUNT_MAX as u16 - 1;

/// Returns whether a name begins like those of the library's own functions.
const fn is_of_the_library(name: &str) -> bool {
    matches!(name.as_bytes(), [b'f', b'a', b'r', b's', b'i', b'd', b'e', b'/', ..])
}

/// The name and the types of a function that any program of the job can call, including one that
/// was built separately.
///
/// The program that has the function [registers](crate::Job::register) it. A caller needs only the
/// same `Named`, for [`call_named`](crate::To::call_named) or
/// [`call_named_return`](crate::To::call_named_return). The types on both sides need not be the
/// same, but must have the same shape: the same fields and variants, with the same names, in the
/// same order. A call does not run if its shape differs or the name is not registered at the
/// receiver. The caller of `call_named_return` then gets [`Error::NamedRefused`].
///
/// ```no_run
/// use farside::prelude::*;
/// use farside::Named;
///
/// const ADD: Named<(u64, u64)> = Named::new("histogram/add");
/// const SIZE: Named<(), u64> = Named::new("histogram/size");
///
/// # fn main() -> farside::Result<()> {
/// farside::job()
///     .register(ADD, |there, (bucket, by)| println!("{}: {by} more in {bucket}", there.id()))
///     .register(SIZE, |_, ()| 100)
///     .run(|me: &Worker| {
///         let size = me.call_named_return(me.neighbor(1), SIZE, ())?.wait()?;
///         me.call_named(me.neighbor(1), ADD, (size / 2, 1))?;
///         me.barrier()
///     })
/// # }
/// ```
///
/// Arguments and results are copied. The sender drops the originals.
pub struct Named<A, R = ()> {
    name: &'static str,
    function: u64,
    types: PhantomData<fn(A) -> R>,
}

impl<A, R> Named<A, R> {
    /// The function of this name. By convention the name begins with that of its program or
    /// library, and a slash.
    ///
    /// # Panics
    /// If the name begins with `farside/`: such names belong to this library. In a constant, this
    /// is an error of compilation:
    ///
    /// ```compile_fail
    /// # use farside::Named;
    /// const VALUE: Named<u64> = Named::new("farside/value");
    /// ```
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        assert!(!is_of_the_library(name), "names that begin with `farside/` belong to the library");
        Self::of_the_library(name)
    }

    /// A function of this library.
    pub(crate) const fn of_the_library(name: &'static str) -> Self {
        Self { name, function: hash_name(name), types: PhantomData }
    }

    /// The function's name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }
}

impl<A, R> Clone for Named<A, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A, R> Copy for Named<A, R> {}

impl<A, R> fmt::Debug for Named<A, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Named").field(&self.name).finish()
    }
}

impl<A: Wire, R: Wire> Named<A, R> {
    /// Returns the hash on which a caller and the registered function must agree, and the shape of
    /// the result.
    ///
    /// # Errors
    /// [`Error::NotPortable`].
    #[inline]
    fn signature(self) -> Result<(u64, Schema), Error> {
        let (arguments, result) = (Schema::of::<A>(), Schema::of::<R>());
        match arguments.unportable().or(result.unportable()) {
            Some(type_name) => Err(Error::NotPortable { name: self.name, type_name }),
            None => Ok((arguments.hash().rotate_left(1) ^ result.hash(), result)),
        }
    }

    /// Returns the head of a call, and the size limit of its result if there is one.
    ///
    /// # Errors
    /// [`Error::NotPortable`].
    #[inline]
    pub(crate) fn head(self, after: After) -> Result<(Head, Option<usize>), Error> {
        let (signature, result) = self.signature()?;
        Ok((Head { function: self.function, signature, after }, result.bytes_max()))
    }
}

/// The functions that a program has registered, by the hashes of their names.
#[derive(Clone, Default)]
pub(crate) struct Names {
    functions: HashMap<u64, Registered>,
}

#[derive(Clone)]
struct Registered {
    name: &'static str,
    signature: u64,
    function: Arc<dyn Function>,
}

impl Names {
    /// Returns the functions of the library, which every program has.
    pub(crate) fn of_the_library() -> Self {
        let mut names = Self::default();
        crate::runtime::collective::register(&mut names);
        names
    }

    /// Adds a function.
    ///
    /// # Panics
    /// When a function of this name exists, or a type cannot travel.
    #[track_caller]
    pub(crate) fn add<A: Wire, R: Wire>(&mut self, named: Named<A, R>, function: fn(&Worker, A) -> R) {
        let signature = match named.signature() {
            Ok((signature, _)) => signature,
            Err(error) => panic!("{error}"),
        };
        let registered = Registered { name: named.name, signature, function: Arc::new(Typed(function)) };
        if let Some(other) = self.functions.insert(named.function, registered) {
            panic!("{} and {}: two functions with one name", other.name, named.name);
        }
    }
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.functions.values().map(|registered| registered.name)).finish()
    }
}

/// A registered function of any types.
trait Function: Send + Sync {
    /// Decodes the arguments, runs the function, and encodes the result if `result` is given.
    ///
    /// # Errors
    /// [`WireError`] if the arguments are malformed; the function was not run then.
    fn run(&self, there: &Worker, arguments: &[u8], result: Option<&mut Vec<u8>>) -> Result<(), WireError>;
}

struct Typed<A, R>(fn(&Worker, A) -> R);

/// Records are whole words, so fewer than 8 bytes of padding follow the arguments.
const PADDING_BYTES_MAX: usize = 7;

impl<A: Wire, R: Wire> Function for Typed<A, R> {
    fn run(&self, there: &Worker, arguments: &[u8], wanted: Option<&mut Vec<u8>>) -> Result<(), WireError> {
        let arguments = wire::decode(Decoder::new(arguments).within(there), PADDING_BYTES_MAX)?;
        let result = (self.0)(there, arguments);
        if let Some(bytes) = wanted {
            *bytes = wire::encode(&result, std::mem::take(bytes));
        }
        Ok(())
    }
}

/// The receiver's action after running a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
pub(crate) enum After {
    Nothing,
    CountDown(LatchAddress),
    Answer(ReplyAddress),
}

/// The part of a record before the arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
pub struct Head {
    /// The hash of the name.
    function: u64,
    /// The hash of the shapes of arguments and result.
    signature: u64,
    after: After,
}

impl Head {
    /// The owner of the latch or slot.
    fn owner(&self) -> Option<u32> {
        match self.after {
            After::Nothing => None,
            After::CountDown(latch) => Some(latch.worker),
            After::Answer(reply) => Some(reply.name.worker),
        }
    }
}

/// The record of a call of a named function, ready to send.
#[derive(Debug)]
pub(crate) struct NamedCall<'a>(&'a [u8]);

impl<'a> NamedCall<'a> {
    /// Encodes a call into `record`, an empty buffer.
    pub(crate) fn encode<A: Wire>(head: &Head, arguments: &A, record: &'a mut Vec<u8>) -> Self {
        *record = wire::encode(arguments, wire::encode(head, std::mem::take(record)));
        Self(record)
    }
}

impl Payload for NamedCall<'_> {
    fn bytes(&self) -> usize {
        self.0.len()
    }

    unsafe fn write(self, out: *mut u8) {
        // SAFETY: `out` has room for the record; a record's memory is not a slice of this process.
        unsafe { std::ptr::copy_nonoverlapping(self.0.as_ptr(), out, self.0.len()) };
    }
}

/// Runs a call of a named function. Returns the end of the record, or null if the record is
/// malformed.
///
/// # Safety
/// The bytes from `payload` to `end` are readable. Other processes may write them.
pub(crate) unsafe fn run(worker: &Worker, from: Source, payload: *const u8, end: *const u8) -> *const u8 {
    let bytes = end.addr() - payload.addr();
    // The sender may run any binary, and so may do anything. The checks need a copy that cannot
    // change.
    let mut record = worker.take_buffer();
    record.resize(bytes, 0);
    // SAFETY: by the contract `bytes` bytes are readable; the buffer has as many, and belongs to
    // this thread.
    unsafe { racy::copy_in(payload, record.as_mut_ptr(), bytes) };
    let is_call = run_copy(worker, from, &record);
    worker.give_buffer(record);
    if is_call { end } else { std::ptr::null() }
}

/// Runs the call in this record. Returns `false` if the record is malformed.
fn run_copy(worker: &Worker, from: Source, record: &[u8]) -> bool {
    let process = worker.process_handle();
    let mut input = Decoder::new(record);
    let Ok(head) = Head::decode(&mut input) else { return false };
    let arguments = input.rest();
    // A caller may name only its own latches and slots.
    let owner = head.owner().map(|worker| process.shape().answer_place(worker).map(|(process, _)| process));
    if owner.is_some_and(|owner| owner.is_none() || owner != process.job.process_of(from)) {
        return false;
    }
    let function = find(&process.calls.names, &head);
    match head.after {
        After::Nothing => {
            let ran = function.and_then(|function| function.run(worker, arguments, None).map_err(NameRefusal::from));
            note(worker, from, &head, ran);
        }
        After::CountDown(latch) => {
            let ran = function.and_then(|function| function.run(worker, arguments, None).map_err(NameRefusal::from));
            if ran.is_ok() {
                latch.count(process);
            }
            note(worker, from, &head, ran);
        }
        After::Answer(reply) => {
            let mut result = Vec::new();
            let run = || function?.run(worker, arguments, Some(&mut result)).map_err(NameRefusal::from);
            match catch_unwind(AssertUnwindSafe(run)) {
                Ok(Ok(())) => answer(process, reply, Status::Done, result.as_slice()),
                Ok(Err(refusal)) => {
                    worker.count_refused();
                    answer(process, reply, Status::Refused, [refusal as u8].as_slice());
                }
                Err(panic) => answer(process, reply, Status::Panicked, panic_message(&*panic).as_bytes()),
            }
        }
    }
    true
}

fn find<'a>(names: &'a Names, head: &Head) -> Result<&'a dyn Function, NameRefusal> {
    match names.functions.get(&head.function) {
        None => Err(NameRefusal::Unknown),
        Some(registered) if registered.signature != head.signature => Err(NameRefusal::OtherTypes),
        Some(registered) => Ok(&*registered.function),
    }
}

/// Records that a call without an answer did not run. The worker reports it as it reports a panic.
fn note(worker: &Worker, from: Source, head: &Head, ran: Result<(), NameRefusal>) {
    if let Err(why) = ran {
        let registered = worker.process_handle().calls.names.functions.get(&head.function);
        let name =
            registered.map_or_else(|| format!("#{:016x}", head.function), |registered| registered.name.to_owned());
        worker.count_refused();
        worker.report_refused(Error::NamedCallRefused { from, name, why });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "two functions with one name")]
    fn a_name_is_registered_once() {
        let mut names = Names::of_the_library();
        names.add(Named::<u8>::new("test/a"), |_, _| ());
        names.add(Named::<u16>::new("test/a"), |_, _| ());
    }

    #[test]
    #[should_panic(expected = "belong to the library")]
    fn the_librarys_names_are_its_own() {
        let name = String::leak("farside/".to_owned() + "a");
        let _ = Named::<u8>::new(name);
    }

    #[test]
    #[should_panic(expected = "among processes of one binary")]
    fn functions_of_unportable_types_are_not_registered() {
        Names::of_the_library().add(Named::<crate::Reply<u8>>::new("test/a"), |_, _| ());
    }
}
