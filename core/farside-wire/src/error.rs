//! [`WireError`]: defects of the bytes of a record.

use std::any::type_name;

/// The bytes of a record do not match its type.
///
/// Processes of one job run the same binary and publish whole records. So the cause is a defect of
/// a hand-written [`Wire`](super::Wire), or memory that was overwritten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The record ends before the value does.
    #[error(
        "{type_name} needs {wanted} bytes where its record has {available} left: \
         check that `write` and `read` of its `Wire` agree"
    )]
    Truncated {
        /// The type that was being read.
        type_name: &'static str,
        /// The least number of bytes that it needs next.
        wanted: usize,
        /// The number of bytes that are left.
        available: usize,
    },
    /// A tag or a checked value does not belong to the type.
    #[error("{value:#x} is not a valid {type_name}: check that `write` and `read` of its `Wire` agree")]
    Invalid {
        /// The type that was being read.
        type_name: &'static str,
        /// The value in the record.
        value: u64,
    },
    /// The bytes of a `String` are not UTF-8.
    #[error(
        "the bytes of a string are not UTF-8 from byte {valid_bytes} on: \
         check that `write` and `read` of the `Wire` around it agree"
    )]
    NotUtf8 {
        /// The number of bytes, from the start, that are UTF-8.
        valid_bytes: usize,
    },
    /// The value is usable only in a process of a job.
    #[error("{type_name} was read outside a job: it is the handle of something that a job owns")]
    OutsideAJob {
        /// The type that was being read.
        type_name: &'static str,
    },
    /// Values are nested too deeply.
    #[error("{type_name} lies more than {depth_max} values deep: send a flatter one")]
    TooDeep {
        /// The type that was being read.
        type_name: &'static str,
        /// The largest nesting depth.
        depth_max: u32,
    },
    /// The type travels only among processes of one binary.
    #[error(
        "{type_name} travels only among processes of one binary: send a type with `#[derive(Wire)]` made of others that travel"
    )]
    NotPortable {
        /// The type.
        type_name: &'static str,
    },
    /// The sender's type differs from the receiver's.
    #[error("it was sent as another type than {type_name}: use types of the same shape in all programs of the job")]
    OtherType {
        /// The type that was to be read.
        type_name: &'static str,
    },
    /// The value ends before its record does.
    #[error("{left_bytes} bytes are left over after {type_name}: check that `write` and `read` of its `Wire` agree")]
    LeftOver {
        /// The type that was read.
        type_name: &'static str,
        /// The number of bytes that it did not consume.
        left_bytes: usize,
    },
}

impl WireError {
    /// Returns the error for a tag or a checked value that is not a `T`.
    #[cold]
    #[must_use]
    pub fn invalid<T>(value: impl Into<u64>) -> Self {
        Self::Invalid { type_name: type_name::<T>(), value: value.into() }
    }

    #[cold]
    pub(crate) fn truncated<T: ?Sized>(wanted: usize, available: usize) -> Self {
        Self::Truncated { type_name: type_name::<T>(), wanted, available }
    }

    #[cold]
    pub(crate) fn too_deep<T: ?Sized>(depth_max: u32) -> Self {
        Self::TooDeep { type_name: type_name::<T>(), depth_max }
    }

    #[cold]
    pub(crate) fn not_portable<T>() -> Self {
        Self::NotPortable { type_name: type_name::<T>() }
    }

    /// Returns the error for a sender's type that is not `T`.
    #[cold]
    #[must_use]
    pub fn other_type<T>() -> Self {
        Self::OtherType { type_name: type_name::<T>() }
    }

    /// Returns the error for a `T` that was read without the [context](super::Reader::context) that
    /// it needs.
    #[cold]
    #[must_use]
    pub fn outside_a_job<T>() -> Self {
        Self::OutsideAJob { type_name: type_name::<T>() }
    }

    /// Returns the error for `left_bytes` bytes that follow the value of type `T`.
    #[cold]
    #[must_use]
    pub fn left_over<T>(left_bytes: usize) -> Self {
        Self::LeftOver { type_name: type_name::<T>(), left_bytes }
    }
}
