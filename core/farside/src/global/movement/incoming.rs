//! The results of operations.

use std::marker::PhantomData;

use super::handle::Handle;
use super::room::Parcel;
use super::work::MoveValue;
use crate::error::Result;
use crate::runtime::process::lock;
use crate::runtime::worker::Worker;

/// The result of an operation: the buffer that was handed over for it, or the earlier value of a
/// word. [`take`](Self::take) waits for it.
///
/// Dropping it drops the result; the operation continues.
#[derive(Debug)]
#[must_use = "dropping it discards what the operation brings"]
pub struct Incoming<T> {
    handle: Handle,
    content: Content,
    of: PhantomData<fn() -> T>,
}

#[derive(Debug)]
enum Content {
    Here(MoveValue),
    Coming(Parcel),
}

impl<T> Incoming<T> {
    pub(super) fn over(handle: Handle, brought: MoveValue) -> Self {
        Self { handle, content: Content::Here(brought), of: PhantomData }
    }

    pub(super) fn open(handle: Handle, parcel: Parcel) -> Self {
        Self { handle, content: Content::Coming(parcel), of: PhantomData }
    }

    /// Returns the handle of the operation, to wait for it or to order others after it.
    pub fn handle(&self) -> Handle {
        self.handle
    }
}

impl<T: OperationValue> Incoming<T> {
    /// Waits until the operation has ended, whether or not those before it have, and takes its
    /// result.
    ///
    /// # Errors
    /// [`GlobalError::Movement`](crate::global::GlobalError::Movement) with `Failed` or
    /// `NotStarted` if the operation failed, or with `AlreadyReported` if that was returned before.
    /// [`Error::Deadline`](crate::Error::Deadline), after which the operation continues;
    /// [`Error::InHandler`](crate::Error::InHandler) in a handler.
    pub fn take(self, me: &Worker) -> Result<T> {
        let brought = match self.content {
            Content::Here(brought) => Some(brought),
            Content::Coming(parcel) => {
                me.wait_for_end(self.handle)?;
                lock(&parcel).take()
            }
        };
        let taken = brought.and_then(|brought| match brought {
            MoveValue::Nothing => None,
            MoveValue::Buffer(buffer) => T::from_buffer(buffer),
            MoveValue::Previous(word) => T::from_word(word),
        });
        taken.ok_or_else(|| super::MovementError::AlreadyReported { handle: self.handle }.into())
    }
}

/// The types of results: `Vec<u8>`, and the words `u32` and `u64`.
pub trait OperationValue: sealed::FromMove {}

impl OperationValue for Vec<u8> {}
impl OperationValue for u32 {}
impl OperationValue for u64 {}

mod sealed {
    pub trait FromMove: Sized {
        fn from_buffer(_: Vec<u8>) -> Option<Self> {
            None
        }

        fn from_word(_: u64) -> Option<Self> {
            None
        }
    }

    impl FromMove for Vec<u8> {
        fn from_buffer(buffer: Vec<u8>) -> Option<Self> {
            Some(buffer)
        }
    }

    impl FromMove for u32 {
        fn from_word(word: u64) -> Option<Self> {
            Some(word as u32)
        }
    }

    impl FromMove for u64 {
        fn from_word(word: u64) -> Option<Self> {
            Some(word)
        }
    }
}
