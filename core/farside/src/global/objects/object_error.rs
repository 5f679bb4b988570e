//! The faults of collective objects, and of their use.

use farside_fabric::WorkerId;

/// Why a collective object could not be made, or an access to one was not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ObjectError {
    /// The array ends before the access does.
    #[error("{count} values from index {index} on reach beyond the array, which has {length}")]
    Outside {
        /// The first index.
        index: usize,
        /// The number of values.
        count: usize,
        /// The length of the array.
        length: usize,
    },
    /// The byte space ends before the access does.
    #[error("{bytes} bytes from offset {offset} on reach beyond the space, which has {space_bytes}")]
    OutsideSpace {
        /// The start of the access.
        offset: u64,
        /// The length of the access.
        bytes: usize,
        /// The size of the space.
        space_bytes: u64,
    },
    /// A byte space was to have slices in processes that the job does not have.
    #[error(
        "{slices} slices from process {first} on need {} processes, and the job has {processes}: begin earlier, or take fewer \
         and longer slices", u64::from(*first) + u64::from(*slices)
    )]
    TooManySlices {
        /// The process of the first slice.
        first: u32,
        /// The number of slices.
        slices: u32,
        /// The number of processes.
        processes: u32,
    },
    /// There is no memory of this size, or no addresses for it.
    #[error(
        "{length} values of {value_bytes} bytes each are too many for one object, of which a process has less than 256 GiB: \
         spread it over more processes, or make several objects"
    )]
    TooLong {
        /// The number of values.
        length: u64,
        /// The size of each.
        value_bytes: usize,
    },
    /// Workers came to the same collective with different requests.
    #[error(
        "{a} and {b} asked for different things in the same collective: all workers must make the same objects, of the same type and \
         size, in the same order"
    )]
    Unequal {
        /// One of them.
        a: WorkerId,
        /// Another.
        b: WorkerId,
    },
}
