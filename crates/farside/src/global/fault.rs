//! What can be wrong with an address.

/// What is wrong with an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressFault {
    /// It is null.
    #[error("it is null: a pointer was used before it was set, or at the end of a list")]
    Null,
    /// It names a process that the job does not have.
    #[error("the job has processes 0 to {} only: it is of another job, or overwritten", count - 1)]
    NoSuchProcess {
        /// How many there are.
        count: u32,
    },
    /// Nothing is registered there any more, or ever was.
    #[error("nothing is registered there: it was deregistered, or the address is of another job, or overwritten")]
    Stale,
    /// Its owner has registered it to be read only.
    #[error("its owner has registered it to be read only: get from it, or have it registered for writing")]
    ReadOnly,
    /// The region ends before the access does.
    #[error("an access of {bytes} bytes there leaves the region, which has {region_bytes}")]
    OutOfRange {
        /// How long the access is.
        bytes: u64,
        /// The size of the region.
        region_bytes: u64,
    },
    /// A range of values ends before it begins.
    #[error("the range of values ends at {end}, before it begins at {start}: an empty one ends where it begins")]
    Backwards {
        /// The first index.
        start: usize,
        /// The index behind the last.
        end: usize,
    },
    /// An address was computed from it that no region has.
    #[error("{bytes} bytes from there is no address: a region begins at offset 0, and has 4 GiB at most")]
    MovedOutside {
        /// How far away it would be.
        bytes: u64,
    },
    /// A signal must not lie in the data that it announces.
    #[error(
        "the signal lies inside of the {bytes} bytes that it is to announce, and would be overwritten: give it a place of its own"
    )]
    InsideOfData {
        /// How long the data is.
        bytes: u64,
    },
    /// A value or a word must lie at a multiple of its alignment.
    #[error("the access needs memory at a multiple of {align}")]
    Misaligned {
        /// Of what it must be a multiple.
        align: usize,
    },
}
