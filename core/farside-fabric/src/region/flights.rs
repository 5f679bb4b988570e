//! Groups of concurrent operations on a region.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::time::{Duration, Instant};

use crate::ids::ProcessId;
use crate::operation::{Carrier, Completion, FabricError, Operation, Outcome, RemoteKey};

/// Maximum number of concurrent operations.
pub const OPERATIONS_MAX: usize = 64;
/// Maximum number of their bytes, unless a single operation has more.
pub const BYTES_MAX: usize = 256 << 10;

/// Pause between attempts to post an operation while the queue is full.
const NAP_WHILE_FULL: Duration = Duration::from_micros(50);

/// Puts into a region, or gets from it, of which up to [`OPERATIONS_MAX`] operations or
/// [`BYTES_MAX`] bytes are in flight at a time.
///
/// The data of a get is passed to `land`, with the range of the caller's bytes that it belongs to.
/// If the value is dropped early, operations in flight continue, and their results are ignored.
///
/// ```no_run
/// # use std::time::Instant;
/// # use farside_fabric::{FabricError, RemoteKey};
/// # use farside_fabric::region::flights::Flights;
/// # use farside_fabric::transport::Transport;
/// # fn example(
/// #     transport: &dyn Transport,
/// #     key: RemoteKey,
/// #     deadline: Instant,
/// # ) -> Result<(), FabricError> {
/// let mut ends = [0; 2000];
/// let store = |range: std::ops::Range<usize>, bytes: &[u8]| ends[range].copy_from_slice(bytes);
/// let mut flights = Flights::new(transport, key, deadline, store);
/// flights.get(0, 0..1000)?;
/// flights.get(9000, 1000..2000)?;
/// flights.finish()
/// # }
/// ```
pub struct Flights<'a, L> {
    transport: &'a dyn Carrier,
    key: RemoteKey,
    deadline: Instant,
    land: L,
    /// The completion of each operation, and the range of its bytes.
    under_way: VecDeque<(Completion, Range<usize>)>,
    bytes: usize,
}

impl<'a, L: FnMut(Range<usize>, &[u8])> Flights<'a, L> {
    /// Creates an empty group. All operations must end by `deadline`.
    pub fn new(transport: &'a dyn Carrier, key: RemoteKey, deadline: Instant, land: L) -> Self {
        Self { transport, key, deadline, land, under_way: VecDeque::new(), bytes: 0 }
    }

    /// Writes `data` at `offset`, once earlier operations have made room. The caller may reuse the
    /// buffer when this returns.
    ///
    /// # Errors
    /// [`FabricError::OutOfRange`], [`FabricError::Deadline`], [`FabricError::Disconnected`], also
    /// of earlier operations.
    pub fn put(&mut self, offset: u64, data: &[u8]) -> Result<(), FabricError> {
        self.make_room(data.len())?;
        self.post(0..data.len(), Operation::Put { offset, data: data.to_vec() })
    }

    /// Reads the bytes for `range` from `offset`, once earlier operations have made room.
    ///
    /// # Errors
    /// [`FabricError::OutOfRange`], [`FabricError::Deadline`], [`FabricError::Disconnected`], also
    /// of earlier operations.
    pub fn get(&mut self, offset: u64, range: Range<usize>) -> Result<(), FabricError> {
        self.make_room(range.len())?;
        let room = vec![0; range.len()];
        self.post(range, Operation::Get { offset, room })
    }

    fn make_room(&mut self, bytes: usize) -> Result<(), FabricError> {
        let is_full = |this: &Self| this.under_way.len() >= OPERATIONS_MAX || this.bytes + bytes > BYTES_MAX;
        while !self.under_way.is_empty() && is_full(self) {
            self.end_first()?;
        }
        Ok(())
    }

    fn post(&mut self, range: Range<usize>, mut operation: Operation) -> Result<(), FabricError> {
        loop {
            match self.transport.post(self.key, operation) {
                Ok(completion) => {
                    self.bytes += range.len();
                    self.under_way.push_back((completion, range));
                    return Ok(());
                }
                Err(unposted) => operation = unposted.for_lack_of_room()?,
            }
            match self.under_way.is_empty() {
                true => nap_while_full(self.transport, self.key.process, self.deadline)?,
                false => self.end_first()?,
            }
        }
    }

    /// Waits for the end of all operations.
    ///
    /// # Errors
    /// The error of the first operation that failed; [`FabricError::Deadline`].
    pub fn finish(mut self) -> Result<(), FabricError> {
        while !self.under_way.is_empty() {
            self.end_first()?;
        }
        Ok(())
    }

    fn end_first(&mut self) -> Result<(), FabricError> {
        let Some((completion, range)) = self.under_way.pop_front() else { return Ok(()) };
        self.bytes -= range.len();
        let process = self.key.process;
        match completion.wait(self.transport, process, self.deadline)? {
            Outcome::Put(_) => {}
            got => {
                let bytes = got.into_bytes(process, range.len())?;
                (self.land)(range, &bytes);
            }
        }
        Ok(())
    }
}

impl<L> fmt::Debug for Flights<'_, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flights").field("key", &self.key).field("under_way", &self.under_way).finish_non_exhaustive()
    }
}

/// Pauses briefly until there may be room for an operation on memory of `process`.
///
/// # Errors
/// [`FabricError::Deadline`].
pub(super) fn nap_while_full(
    transport: &dyn Carrier,
    process: ProcessId,
    deadline: Instant,
) -> Result<(), FabricError> {
    let clock = transport.clock();
    if clock.now() >= deadline {
        return Err(FabricError::Deadline { doing: "waiting for room for an operation", process });
    }
    transport.progress();
    clock.sleep_until_event(NAP_WHILE_FULL);
    Ok(())
}
