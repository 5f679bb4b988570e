//! [`Remote`]: memory of the peer, and what travels in place of memory.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use farside_wire::Wire;
use farside_wire::check::MessageKind;

use crate::allocated::Allocated;
use crate::area::Area;
use crate::frame::{Head, Kind};
use crate::link::{Fetching, How, Link, Local, TransferError, in_thread};
use crate::path::Direct;
use crate::path::rdma::PeerMemory;
use crate::patience::Patience;
use crate::segments::{self, Segments};
use crate::table::index;

/// The most bytes that travel with the call itself.
const INLINE_BYTES_MAX: u64 = 4096;
/// The same for all memory of one call.
const INLINE_BYTES_PER_CALL: u64 = 4 * INLINE_BYTES_MAX;
/// The most bytes in which the segments of one call are described: any number at regular distances,
/// some ten thousand others. Memory of more is read by messages.
const SEGMENTS_BYTES_MAX: usize = 40 << 10;

/// The size below which segments are read by messages, if that is their average: the system takes
/// longer to find a small segment in another process than its owner takes to copy it.
const SEGMENT_BYTES_MIN: u64 = 1024;

/// Returns whether segments, of `bytes` bytes together, are read by messages.
fn are_short(segments: usize, bytes: u64) -> bool {
    segments > 1 && bytes / (segments as u64) < SEGMENT_BYTES_MIN
}

/// The size below which a transfer by RDMA takes longer than by messages: it takes two exchanges
/// with the peer.
const RDMA_BYTES_MIN: usize = 64 << 10;

/// Memory of the peer.
#[derive(Debug)]
pub(crate) struct Remote {
    pub(crate) holder: Holder,
    pub(crate) link: Arc<Link>,
    pub(crate) memory: Description,
    pub(crate) segments: Segments,
}

/// The holder of memory of the peer.
#[derive(Clone, Debug)]
pub enum Holder {
    /// The handler of a call, until the call ends.
    Handler(Patience),
    /// The caller that got it in a result, until it releases it.
    Caller {
        /// The time that each access has.
        time: Duration,
        /// Kept while the memory is used.
        _connection: Arc<dyn Any + Send + Sync>,
    },
}

impl Remote {
    pub(crate) fn patience(&self) -> Patience {
        match &self.holder {
            Holder::Handler(call) => call.clone(),
            Holder::Caller { time, .. } => Patience::until(Instant::now() + *time),
        }
    }

    fn shown(&self) -> Shown<'_> {
        Shown { link: &self.link, memory: &self.memory, segments: &self.segments }
    }

    /// The mapping, if this side maps the memory.
    pub(crate) fn mapping(&self) -> Option<Arc<Allocated>> {
        self.shown().mapping()
    }

    /// Writes a part, which lies inside the memory.
    pub(crate) fn push(&self, offset: u64, from: &[u8]) -> Result<(), TransferError> {
        if let Some(done) = self.write_mapped(offset, from) {
            return done;
        }
        let (patience, number) = (self.patience(), self.memory.number);
        match self.shown().registered(from.len()).filter(|memory| memory.may_write) {
            Some(memory) => {
                let parts = self.segments.range(offset as usize, from.len());
                let how = How::Thread(&patience);
                in_thread(self.link.transfer_registered(number, &memory, parts, Local::From(from), how))
            }
            None => self.link.push(number, offset, from, &patience),
        }
    }

    /// As [`push`](Self::push), in the task of a call.
    pub(crate) async fn push_async(&self, offset: u64, from: Vec<u8>) -> Result<(), TransferError> {
        if let Some(done) = self.write_mapped(offset, &from) {
            return done;
        }
        let number = self.memory.number;
        match self.shown().registered(from.len()).filter(|memory| memory.may_write) {
            Some(memory) => {
                let parts = self.segments.range(offset as usize, from.len());
                self.link.transfer_registered(number, &memory, parts, Local::From(&from), How::Task).await
            }
            None => self.link.push_awaited(number, offset, from).await,
        }
    }

    /// Reads a part in the task of a call.
    pub(crate) async fn pull_async(&self, offset: u64, mut piece: Vec<u8>) -> Result<Vec<u8>, TransferError> {
        if let Some(done) = self.pull_alone(offset, &mut piece) {
            return done.map(|()| piece);
        }
        let Self { link, memory: Description { number, .. }, segments, holder } = self;
        if let Holder::Caller { .. } = holder {
            return self.pull(offset, &mut piece).map(|()| piece);
        }
        if let Some(memory) = self.shown().registered(piece.len()) {
            let parts = segments.range(offset as usize, piece.len());
            link.transfer_registered(*number, &memory, parts, Local::Into(&mut piece), How::Task).await?;
            return Ok(piece);
        }
        let area = Arc::new(Area::owned(piece, true));
        Fetching::begin(link, *number, offset, area.clone())?.wait(How::Task).await?;
        Ok(area.take())
    }

    /// Returns whether transfers of `bytes` bytes go by RDMA.
    pub(crate) fn is_registered(&self, bytes: usize) -> bool {
        self.shown().registered(bytes).is_some()
    }

    /// Reads a part, which lies inside the memory.
    pub(crate) fn pull(&self, offset: u64, into: &mut [u8]) -> Result<(), TransferError> {
        self.shown().pull(offset, into, &self.patience())
    }

    /// Reads as [`pull`](Self::pull) does, if the peer need not take part.
    pub(crate) fn pull_alone(&self, offset: u64, into: &mut [u8]) -> Option<Result<(), TransferError>> {
        self.shown().pull_alone(offset, into, &self.patience())
    }

    /// Writes to the mapping, if this side may.
    pub(crate) fn write_mapped(&self, offset: u64, from: &[u8]) -> Option<Result<(), TransferError>> {
        let memory = self.mapping().filter(|memory| memory.mapping.may_write())?;
        let parts = self.segments.range(offset as usize, from.len());
        let copy = |at: usize, to, bytes| memory.mapping.write(to, &from[at..at + bytes]);
        Some(self.link.copy_mapped(self.memory.number, parts, &self.patience(), copy))
    }

    /// Where the memory begins in its mapping, if it is one segment.
    pub(crate) fn offset(&self) -> Option<usize> {
        let mut segments = self.segments.range(0, usize::MAX);
        segments.next().filter(|_| segments.next().is_none()).map(|(offset, _)| offset)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.memory.bytes
    }

    /// Returns whether the peer still holds the memory ready.
    pub(crate) fn is_valid(&self) -> bool {
        let is_wanted = match &self.holder {
            Holder::Handler(call) => !call.is_over() && self.link.end().is_none(),
            Holder::Caller { .. } => self.link.look(),
        };
        let is_there = |direct: &dyn Direct| direct.is_marked(index(self.memory.number), self.memory.number);
        is_wanted && (self.segments.is_empty() || self.link.path().direct().is_none_or(is_there))
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        if matches!(self.holder, Holder::Caller { .. }) {
            self.memory.release(&self.link);
        }
    }
}

/// The description that travels in place of memory.
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "farside_wire")]
pub struct Description {
    /// The caller's number for it.
    pub number: u64,
    /// Its size.
    pub bytes: u64,
    /// The bytes themselves, if they are few.
    pub inline: Option<Vec<u8>>,
    /// Its segments at the caller, packed. Empty if they cannot be of use.
    pub segments: Vec<u8>,
    /// The number of the shared memory in which the segments lie. They begin at offsets then.
    pub shared: Option<u64>,
    /// True if it is to be written, and not to be read.
    pub may_write: bool,
}

impl Description {
    /// Tells the peer that its memory is no longer used.
    pub fn release(&self, link: &Arc<Link>) {
        link.send_last(Head::new(Kind::Release, self.number));
    }
}

/// Exposes memory that was attached to arguments.
pub fn expose(link: &Arc<Link>, areas: &[Arc<Area>]) -> Vec<Description> {
    describe(link, areas.iter(), false)
}

/// Exposes memory that was attached to a result, among other things.
pub fn expose_in_result(link: &Arc<Link>, things: &[Option<Arc<Area>>]) -> Vec<Option<Description>> {
    let mut described = describe(link, things.iter().flatten(), true).into_iter();
    things.iter().map(|thing| thing.as_ref().and_then(|_| described.next())).collect()
}

fn describe<'a>(link: &Arc<Link>, areas: impl Iterator<Item = &'a Arc<Area>>, is_in_result: bool) -> Vec<Description> {
    let (mut inline_left, mut segments_left) = (INLINE_BYTES_PER_CALL, SEGMENTS_BYTES_MAX);
    areas
        .map(|area| {
            let bytes = area.bytes();
            let mut inline = None;
            // The caller may want to see later what such memory in a result holds then.
            let is_shown = is_in_result && area.is_alive();
            if !area.may_write() && !is_shown && bytes <= INLINE_BYTES_MAX.min(inline_left) {
                inline_left -= bytes;
                let mut copied = vec![0; bytes as usize];
                inline = area.copy_out(0, &mut copied).is_ok().then_some(copied);
            }
            let (number, is_marked) =
                if is_in_result { link.expose_in_result(area.clone()) } else { link.expose_argument(area.clone()) };
            let is_direct = is_marked && inline.is_none();
            let is_registered = bytes >= RDMA_BYTES_MIN as u64 && link.path().rdma().is_some();
            let is_shared = is_direct || inline.is_none() && is_registered;
            let shared = area.allocated().filter(|_| is_shared).and_then(|memory| Some((link.share(&memory)?, memory)));
            let segments = match (&shared, area.passed_on()) {
                (Some(_), Some(memory)) => memory.segments().pack(segments_left),
                (Some((_, memory)), None) => segments::pack(memory.offsets(area.segments()), segments_left),
                // The third party cannot read the owner's memory by itself.
                (None, Some(_)) => None,
                (None, None) if is_direct && !area.may_write() => {
                    let segments = area.segments();
                    if are_short(segments.len(), bytes) { None } else { segments::pack(segments, segments_left) }
                }
                (None, None) => None,
            };
            let segments = segments.unwrap_or_default();
            segments_left -= segments.len();
            let shared = shared.map(|(number, _)| number);
            Description { number, bytes, inline, segments, shared, may_write: area.may_write() }
        })
        .collect()
}

/// Memory of the peer, as it is read.
#[derive(Clone, Copy)]
struct Shown<'a> {
    link: &'a Arc<Link>,
    memory: &'a Description,
    segments: &'a Segments,
}

impl Shown<'_> {
    /// Reads a part, which lies inside the memory.
    fn pull(self, offset: u64, into: &mut [u8], patience: &Patience) -> Result<(), TransferError> {
        if let Some(done) = self.pull_alone(offset, into, patience) {
            return done;
        }
        let Self { link, memory: Description { number, .. }, segments } = self;
        match self.registered(into.len()) {
            Some(memory) => {
                let parts = segments.range(offset as usize, into.len());
                in_thread(link.transfer_registered(*number, &memory, parts, Local::Into(into), How::Thread(patience)))
            }
            None => link.fetch(*number, offset, into, patience),
        }
    }

    /// Reads as [`pull`](Self::pull) does, if the peer need not take part.
    fn pull_alone(self, offset: u64, into: &mut [u8], patience: &Patience) -> Option<Result<(), TransferError>> {
        let Self { link, memory, segments } = self;
        if let Some(inline) = &memory.inline {
            let from = offset as usize;
            let bytes = inline.get(from..from + into.len()).ok_or(TransferError::Gone);
            return Some(bytes.map(|bytes| into.copy_from_slice(bytes)));
        }
        if let Some(shared) = self.mapping() {
            let parts = segments.range(offset as usize, into.len());
            let copy = |at: usize, from, bytes| shared.mapping.read(from, &mut into[at..at + bytes]);
            return Some(link.copy_mapped(memory.number, parts, patience, copy));
        }
        if memory.shared.is_none() && !segments.is_empty() && !link.cannot_read_peer.load(Ordering::Relaxed) {
            match link.read_directly(memory.number, segments, offset, into, patience) {
                Err(TransferError::Unreadable) => link.cannot_read_peer.store(true, Ordering::Relaxed),
                done => return Some(done),
            }
        }
        None
    }

    /// The number of shared memory, if it can be of use.
    fn shared(self) -> Option<u64> {
        let Self { memory, segments, .. } = self;
        let is_whole = !segments.is_empty() && segments.bytes() as u64 == memory.bytes;
        memory.shared.filter(|_| is_whole)
    }

    /// The mapping of shared memory.
    fn mapping(self) -> Option<Arc<Allocated>> {
        self.link.path().direct()?.shared(self.shared()?)
    }

    /// The registered memory, if it serves a transfer of `bytes` bytes better than messages do.
    fn registered(self, bytes: usize) -> Option<Arc<PeerMemory>> {
        let rdma = self.link.path().rdma()?;
        if bytes < RDMA_BYTES_MIN || rdma.connection().is_none() {
            return None;
        }
        let number = self.shared().filter(|_| !are_short(self.segments.count(), self.memory.bytes))?;
        rdma.known(number)
    }
}

/// Reads all bytes of described memory: arguments or a result that are too long for a frame.
pub fn pull_described(link: &Arc<Link>, memory: &Description, patience: &Patience) -> Result<Vec<u8>, TransferError> {
    let segments = &Segments::unpack(&memory.segments).unwrap_or_default();
    let mut bytes = room_for(memory.bytes)?;
    Shown { link, memory, segments }.pull(0, &mut bytes, patience)?;
    Ok(bytes)
}

/// The same for arguments, in the task of a call.
pub async fn pull_described_async(
    link: Arc<Link>,
    memory: Description,
    call: Patience,
) -> Result<Vec<u8>, TransferError> {
    let segments = Segments::unpack(&memory.segments).unwrap_or_default();
    let room = room_for(memory.bytes)?;
    Remote { holder: Holder::Handler(call), link, memory, segments }.pull_async(0, room).await
}

/// Memory for a size that the peer claims.
pub(crate) fn room_for(bytes: u64) -> Result<Vec<u8>, TransferError> {
    let mut room = Vec::new();
    let length = usize::try_from(bytes).map_err(|_| TransferError::NoMemory { bytes })?;
    room.try_reserve_exact(length).map_err(|_| TransferError::NoMemory { bytes })?;
    room.resize(length, 0);
    Ok(room)
}

/// Memory of arguments and of results, for tests of the decoders. A place in a result without
/// memory takes one byte, and as much room as one with memory.
pub(crate) fn message_kinds() -> Vec<MessageKind> {
    let room = size_of::<Option<Description>>() as u64;
    vec![
        MessageKind::of::<Description>(),
        MessageKind::of::<Vec<Description>>(),
        // Memory grows by doubling.
        MessageKind::of::<Vec<Option<Description>>>().requesting(4 * room),
    ]
}
