//! Traits with the less common methods of [`Worker`](super::Worker), each for one subject.
//!
//! A worker has more methods than anybody reads at a time. Those that a program of some kind needs,
//! and other programs do not, stand in a trait, which the prelude brings in. Inside the crate they
//! are methods of the worker.

mod losses;
mod machines;
mod named_calls;
mod ways;

use super::Worker;

pub use losses::Losses;
pub use machines::Machines;
pub use named_calls::NamedCalls;
pub use ways::Ways;

/// Only [`Worker`] has the methods of these traits, so they can get more of them.
pub trait Sealed {
    /// Returns the worker.
    fn worker(&self) -> &Worker;
}

impl Sealed for Worker {
    #[inline(always)]
    fn worker(&self) -> &Worker {
        self
    }
}

/// Makes a trait of methods that the worker has inside the crate.
macro_rules! extension {
    (
        $(#[$meta:meta])* $trait:ident:
        $(
            $(#[doc = $doc:literal])*
            fn $name:ident $([$($generics:tt)*])? (&self $(, $argument:ident: $type:ty)* $(,)?) $(-> $result:ty)?;
        )*
    ) => {
        $(#[$meta])*
        pub trait $trait: crate::runtime::worker::Sealed {
            $(
                $(#[doc = $doc])*
                #[track_caller]
                fn $name $(<$($generics)*>)? (&self, $($argument: $type),*) $(-> $result)?;
            )*
        }

        impl $trait for Worker {
            $(
                #[inline]
                fn $name $(<$($generics)*>)? (&self, $($argument: $type),*) $(-> $result)? {
                    Worker::$name(self, $($argument),*)
                }
            )*
        }
    };
}

pub(crate) use extension;
