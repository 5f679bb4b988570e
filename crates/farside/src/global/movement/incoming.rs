//! The results of operations.

use std::marker::PhantomData;

use super::handle::Handle;
use super::room::Parcel;
use super::work::Brought;
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
    Here(Brought),
    Coming(Parcel),
}

impl<T> Incoming<T> {
    pub(super) fn over(handle: Handle, brought: Brought) -> Self {
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

impl<T: Brings> Incoming<T> {
    /// Waits until the operation has ended, whether or not those before it have, and takes its
    /// result.
    ///
    /// # Errors
    /// Those of [`Worker::complete`], for this operation alone;
    /// [`GlobalError::Movement`](crate::global::GlobalError::Movement) with `Told` if its failure
    /// was returned before.
    pub fn take(self, me: &Worker) -> Result<T> {
        let brought = match self.content {
            Content::Here(brought) => Some(brought),
            Content::Coming(parcel) => {
                me.wait_for_end(self.handle)?;
                lock(&parcel).take()
            }
        };
        let taken = brought.and_then(|brought| match brought {
            Brought::Nothing => None,
            Brought::Buffer(buffer) => T::from_buffer(buffer),
            Brought::Previous(word) => T::from_word(word),
        });
        taken.ok_or_else(|| super::MovementError::Told { handle: self.handle }.into())
    }
}

/// The types of results: `Vec<u8>`, and the words `u32` and `u64`.
pub trait Brings: sealed::Brought {}

impl Brings for Vec<u8> {}
impl Brings for u32 {}
impl Brings for u64 {}

mod sealed {
    pub trait Brought: Sized {
        fn from_buffer(_: Vec<u8>) -> Option<Self> {
            None
        }

        fn from_word(_: u64) -> Option<Self> {
            None
        }
    }

    impl Brought for Vec<u8> {
        fn from_buffer(buffer: Vec<u8>) -> Option<Self> {
            Some(buffer)
        }
    }

    impl Brought for u32 {
        fn from_word(word: u64) -> Option<Self> {
            Some(word as u32)
        }
    }

    impl Brought for u64 {
        fn from_word(word: u64) -> Option<Self> {
            Some(word)
        }
    }
}
