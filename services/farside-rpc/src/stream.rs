//! [`Stream`]: a result that arrives item by item.
//!
//! ```text
//! caller                                handler's server
//!        ──── Call ────────────────────────►
//!        ◄─── Answer, STREAMED ─────────────   the result around the stream
//!        ◄─── Item: items, MORE ────────────   at most WINDOW frames ahead of the credit
//!        ──── Credit: frames consumed ─────►   when half of the window was consumed
//!        ◄─── Item: items, DONE ────────────   or REFUSED and the reason
//! ```

use std::fmt;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::task::{Poll, Waker};

use farside_connect::attachments::Received;
use farside_connect::lock;
use farside_wire::{Attachment, Decoder, Encoder, Schema, Wire, WireError, travels_attached};

use crate::answer::{DONE, MORE};
use crate::error::{CallError, Never, RESULT};

/// The number of frames with items that a server sends before the caller consumed any.
pub(crate) const WINDOW: u64 = 16;

/// The first word of the schema of a stream.
pub(crate) const WORD: &str = "Stream<";

/// A result that arrives item by item. The handler makes it of an iterator. Its caller iterates.
///
/// A result has at most one stream: it *is* one, or a tuple or struct has one and other parts,
/// which arrive first. Arguments have none. Items that may fail are of a type `Result<T, E>`.
///
/// - The iterator runs after its handler has returned, on a thread of the pool. It rests while the
///   caller has not consumed what was sent, and occupies no thread meanwhile.
/// - The iterator is dropped when the stream ends: also if the caller drops its end, the deadline
///   passes, the connection ends, or the iterator panics.
/// - An error that is no item is the last thing that a caller gets.
///
/// The call ends with its stream. So it counts as under way until then, its deadline covers the
/// whole stream, and lent memory stays lent.
///
/// *Cost.* Items travel in frames of up to 16 KiB, at most 16 of them ahead of the caller. While
/// the caller keeps up, frames are shorter: no item waits for the next one while the caller waits.
/// An item has at most 64 KiB; a longer one ends the stream with [`CallError::TooLarge`].
///
/// ```
/// use farside_rpc::{Call, Credentials, Server, Stream};
///
/// #[farside_rpc::service(name = "primes")]
/// pub trait Primes {
///     /// The primes below a limit, in order.
///     fn below(&self, cx: &Call, limit: u64) -> Result<Stream<u64>, String>;
/// }
///
/// struct Division;
///
/// impl Primes for Division {
///     fn below(&self, _: &Call, limit: u64) -> Result<Stream<u64>, String> {
///         let is_prime = |number: &u64| (2..*number).all(|divisor| number % divisor != 0);
///         Ok(Stream::new((2..limit).filter(is_prime)))
///     }
/// }
///
/// let name = format!("shm:primes-{}", std::process::id());
/// let server = Server::builder().listen(&name)?.provider(0, PrimesServer::new(Division)).start()?;
///
/// let primes = PrimesClient::connect(&name, Credentials::own_user())?;
/// let below_20 = primes.below(20)?.wait()?.collect::<Result<Vec<u64>, _>>()?;
/// assert_eq!(below_20, [2, 3, 5, 7, 11, 13, 17, 19]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "dropping a stream cancels its call"]
pub struct Stream<T> {
    side: Side<T>,
}

type Items<T> = Box<dyn Iterator<Item = T> + Send>;

enum Side<T> {
    /// The items, until the result is encoded.
    Handler(Mutex<Option<Items<T>>>),
    /// The items that arrive, until the stream ends.
    Caller(Option<Box<Incoming>>),
}

impl<T: Wire> Stream<T> {
    /// Makes a result of items.
    pub fn new(items: impl IntoIterator<Item = T, IntoIter: Send + 'static>) -> Self {
        Self { side: Side::Handler(Mutex::new(Some(Box::new(items.into_iter())))) }
    }
}

impl<T: Wire> Stream<T> {
    /// The next item, for a task: the stream of a call that was awaited. `None` at its end.
    ///
    /// ```
    /// use farside_rpc::{CallError, Never, Stream};
    ///
    /// async fn sum(mut numbers: Stream<u64>) -> Result<u64, CallError<Never>> {
    ///     let mut sum = 0;
    ///     while let Some(number) = numbers.next_async().await {
    ///         sum += number?;
    ///     }
    ///     Ok(sum)
    /// }
    /// ```
    pub async fn next_async(&mut self) -> Option<Result<T, CallError<Never>>> {
        poll_fn(|context| match &mut self.side {
            Side::Caller(Some(incoming)) => incoming.poll_arrived(context.waker()),
            _ => Poll::Ready(()),
        })
        .await;
        self.next()
    }
}

/// The items, as they arrive. At the handler, those that it would send.
impl<T: Wire> Iterator for Stream<T> {
    type Item = Result<T, CallError<Never>>;

    fn next(&mut self) -> Option<Self::Item> {
        let incoming = match &mut self.side {
            Side::Handler(items) => return Some(Ok(lock(items).as_mut()?.next()?)),
            Side::Caller(incoming) => incoming,
        };
        let item = incoming.as_mut()?.next().transpose();
        if !matches!(item, Some(Ok(_))) {
            *incoming = None;
        }
        item
    }
}

impl<T: Wire> std::iter::FusedIterator for Stream<T> {}

impl<T> fmt::Debug for Stream<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").finish_non_exhaustive()
    }
}

impl<T: Wire> Attachment for Stream<T> {
    fn describe(schema: &mut Schema) {
        schema.word(WORD);
        T::describe(schema);
        schema.word(">");
        schema.bytes(size_of::<u32>());
    }

    fn encode(&self, out: &mut Encoder) {
        let items = match &self.side {
            Side::Handler(items) => lock(items).take(),
            // A caller that passes a stream on makes a new one of it.
            Side::Caller(_) => None,
        };
        let index = items.map_or(u32::MAX, |items| {
            let outgoing: Outgoing = Box::new(Encoded(items));
            out.attach(Box::new(outgoing))
        });
        index.encode(out);
    }

    fn decode(input: &mut Decoder<'_>) -> Result<Self, WireError> {
        let index = u32::decode(input)?;
        let received: &Received = input.context().ok_or_else(WireError::other_type::<Self>)?;
        let incoming = Incoming::of(received).filter(|_| index != u32::MAX);
        let incoming = incoming.ok_or_else(|| WireError::invalid::<Self>(index))?;
        Ok(Self { side: Side::Caller(Some(incoming)) })
    }
}

travels_attached!([T: Wire] Stream<T>);

/// A frame of items, or one that ends a stream.
#[derive(Debug)]
pub(crate) struct ItemFrame {
    pub(crate) status: u8,
    /// The number of items.
    pub(crate) count: u64,
    pub(crate) body: Vec<u8>,
}

/// Where a caller gets the frames of a stream.
pub(crate) trait ItemFrames: Send {
    /// Waits for the next frame. Its status is [`MORE`] or [`DONE`].
    ///
    /// # Errors
    /// [`CallError`], also if the server says why the stream has failed.
    fn next_frame(&mut self) -> Result<ItemFrame, CallError<Never>>;

    /// Ready when a frame has arrived, or none will.
    fn poll_arrived(&mut self, task: &Waker) -> Poll<()>;
}

/// A stream of results, as its caller receives it. Dropping it cancels its call.
pub(crate) struct Incoming {
    frames: Box<dyn ItemFrames>,
    /// The frame whose items are given out. Its count is that of the items left.
    frame: ItemFrame,
    /// Where its next item begins.
    at: usize,
}

impl Incoming {
    pub(crate) fn new(frames: Box<dyn ItemFrames>) -> Self {
        Self { frames, frame: ItemFrame { status: MORE, count: 0, body: Vec::new() }, at: 0 }
    }

    /// Takes the stream that came with a result.
    pub(crate) fn of(received: &Received) -> Option<Box<Self>> {
        lock(&received.stream).take()?.downcast().ok()
    }

    /// The next item, or `None` at the end of the stream.
    fn next<T: Wire>(&mut self) -> Result<Option<T>, CallError<Never>> {
        if !self.has_next()? {
            return Ok(None);
        }
        let mut input = Decoder::new(&self.frame.body[self.at..]);
        let item = T::decode(&mut input).map_err(|error| CallError::undecodable(RESULT, &error))?;
        self.at = self.frame.body.len() - input.remaining();
        self.frame.count -= 1;
        Ok(Some(item))
    }

    /// Several encoded items at once, and their number. `None` at the end of the stream.
    pub(crate) fn next_encoded(&mut self) -> Result<Option<(u64, Vec<u8>)>, CallError<Never>> {
        if !self.has_next()? {
            return Ok(None);
        }
        let items = self.frame.body.split_off(self.at);
        self.frame.body.clear();
        self.at = 0;
        Ok(Some((std::mem::take(&mut self.frame.count), items)))
    }

    /// Waits for an item. Returns whether there is one.
    fn has_next(&mut self) -> Result<bool, CallError<Never>> {
        while self.frame.count == 0 {
            match self.frame.body.len() - self.at {
                0 if self.frame.status == DONE => return Ok(false),
                0 => (self.frame, self.at) = (self.frames.next_frame()?, 0),
                left => {
                    let cause = format!("{left} bytes are left over after the items of a frame");
                    return Err(CallError::Undecodable { what: RESULT, cause });
                }
            }
        }
        Ok(true)
    }

    /// Ready when [`next`](Self::next) need not wait for long.
    fn poll_arrived(&mut self, task: &Waker) -> Poll<()> {
        let has_items = self.frame.count > 0 || self.at < self.frame.body.len() || self.frame.status != MORE;
        if has_items { Poll::Ready(()) } else { self.frames.poll_arrived(task) }
    }
}

/// The items of a stream on their way out.
pub(crate) type Outgoing = Box<dyn Encode + Send>;

/// An iterator of encoded items.
pub(crate) trait Encode {
    /// Appends the next item. Returns false if there is none.
    fn encode_next(&mut self, out: &mut Vec<u8>) -> bool;
}

struct Encoded<T>(Items<T>);

impl<T: Wire> Encode for Encoded<T> {
    fn encode_next(&mut self, out: &mut Vec<u8>) -> bool {
        let Some(item) = self.0.next() else { return false };
        *out = farside_wire::encode(&item, std::mem::take(out));
        true
    }
}

/// Drops items whose iterator may panic.
pub(crate) fn drop_quietly(items: Outgoing) {
    // The panic hook has reported it, and no caller waits for the result.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(items)));
}
