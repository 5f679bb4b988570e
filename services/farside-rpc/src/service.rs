//! [`Service`]: procedures under one name.

use std::any::Any;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use farside_connect::attachments::{Area, WORD as MEMORY_WORD};
use farside_wire::{Decoder, Encoder, Schema, Wire};

use crate::answer::Refused;
use crate::bulk::{self, Access};
use crate::call::Call;
use crate::stream::{self, Outgoing};

/// How the handler of a procedure runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Handling {
    /// On a thread of the server's pool.
    #[default]
    Pooled,
    /// On the thread that receives, at once. For handlers that take microseconds: they must not
    /// wait, and take no bulk memory.
    Inline,
}

/// Procedures under one name, with their handlers.
///
/// The macro [`service`](crate::service) writes one for a trait. By hand:
///
/// ```
/// use farside_rpc::{Handling, Service};
///
/// let service = Service::new("calculator")
///     .procedure("add", Handling::Inline, |_, (a, b): (u64, u64)| {
///         a.checked_add(b).ok_or_else(|| "the sum is too large".to_string())
///     });
/// assert_eq!(service.name(), "calculator");
/// ```
#[derive(Debug)]
pub struct Service {
    name: String,
    procedures: Vec<Procedure>,
}

/// A procedure with its handler.
#[derive(Clone)]
pub(crate) struct Procedure {
    pub(crate) name: String,
    pub(crate) shape: String,
    pub(crate) handling: Handling,
    pub(crate) run: Arc<Run>,
}

/// Decodes arguments, runs the handler and appends its result.
type Run = dyn Fn(&Call, Decoder<'_>, Vec<u8>) -> Outcome + Send + Sync;

/// How a handler ended.
pub(crate) enum Outcome {
    /// With a result, encoded.
    Done(Vec<u8>),
    /// With the service's error, encoded.
    Failed(Vec<u8>),
    /// It did not run, because its arguments could not be decoded.
    Undecodable(String),
    /// It has not ended.
    Later(Later),
    /// With a result, encoded, and what goes with it.
    With(Vec<u8>, Attachments),
}

/// The memory and items that were attached while a result was encoded.
pub(crate) struct Attachments {
    /// The memory. `None` in the place of the stream.
    pub(crate) memory: Vec<Option<Arc<Area>>>,
    /// The items of the stream.
    pub(crate) items: Option<Outgoing>,
}

impl Attachments {
    fn of(things: Vec<Box<dyn Any + Send>>) -> Self {
        let (mut memory, mut items) = (Vec::new(), None);
        for thing in things {
            match thing.downcast::<Arc<Area>>() {
                Ok(area) => memory.push(Some(*area)),
                Err(thing) => {
                    memory.push(None);
                    items = items.or(thing.downcast::<Outgoing>().ok().map(|items| *items));
                }
            }
        }
        Self { memory, items }
    }
}

/// An `async` handler that runs, or a call whose arguments have yet to arrive.
pub(crate) type Later = Pin<Box<dyn Future<Output = Result<Outcome, Refused>> + Send>>;

impl Outcome {
    fn of<T: Wire, E: Wire>(result: Result<T, E>, out: Vec<u8>) -> Self {
        match result {
            Ok(result) => {
                let mut encoder = Encoder::behind(out);
                result.encode(&mut encoder);
                let (bytes, things) = encoder.into_parts();
                if things.is_empty() { Self::Done(bytes) } else { Self::With(bytes, Attachments::of(things)) }
            }
            Err(error) => Self::Failed(farside_wire::encode(&error, out)),
        }
    }
}

/// The types of a procedure, as two programs compare them.
#[must_use]
pub(crate) fn shape<A: Wire, T: Wire, E: Wire>() -> String {
    format!("{} -> {} ! {}", Schema::text_of::<A>(), Schema::text_of::<T>(), Schema::text_of::<E>())
}

impl Service {
    /// A service without procedures.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), procedures: Vec::new() }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Adds a procedure. Its arguments are a tuple, or one value.
    ///
    /// # Panics
    /// If the service has a procedure of this name, if the procedure runs
    /// [inline](Handling::Inline) and takes bulk memory or returns a [`Stream`](crate::Stream), if
    /// an argument or an error has a stream, if an error has memory, or if a result has memory to
    /// write.
    #[must_use]
    #[track_caller]
    pub fn procedure<A: Wire, T: Wire, E: Wire>(
        self,
        name: impl Into<String>,
        handling: Handling,
        handler: impl Fn(&Call, A) -> Result<T, E> + Send + Sync + 'static,
    ) -> Self {
        let run = move |call: &Call, arguments: A, out| Outcome::of(handler(call, arguments), out);
        self.add::<A, T, E>(name.into(), handling, run)
    }

    /// Adds a procedure with an `async` handler. The server's pool runs it. While it waits, it
    /// occupies no thread. When its call is cancelled, it is dropped where it waits.
    ///
    /// [`Bulk`](crate::Bulk) memory is pulled and pushed with
    /// [`pull_async`](crate::Bulk::pull_async) and [`push_async`](crate::Bulk::push_async).
    ///
    /// ```
    /// use farside_rpc::{Never, Procedure, Service};
    ///
    /// /// A service that asks another server.
    /// fn relay(other: Procedure<u64, u64, Never>) -> Service {
    ///     Service::new("relay").async_procedure("double", move |_, number: u64| {
    ///         let asked = other.start(&number);
    ///         async {
    ///             match asked {
    ///                 Ok(call) => call.await.map_err(|error| error.to_string()),
    ///                 Err(error) => Err(error.to_string()),
    ///             }
    ///         }
    ///     })
    /// }
    /// ```
    ///
    /// # Panics
    /// If the service has a procedure of this name, if an argument or an error has a stream, if an
    /// error has memory, or if a result has memory to write.
    #[must_use]
    #[track_caller]
    pub fn async_procedure<A: Wire, T: Wire, E: Wire, F>(
        self,
        name: impl Into<String>,
        handler: impl Fn(Call, A) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<T, E>> + Send + 'static,
    {
        let run = move |call: &Call, arguments: A, out| {
            let result = handler(call.clone(), arguments);
            Outcome::Later(Box::pin(async { Ok(Outcome::of(result.await, out)) }))
        };
        self.add::<A, T, E>(name.into(), Handling::Pooled, run)
    }

    #[track_caller]
    fn add<A: Wire, T: Wire, E: Wire>(
        mut self,
        name: String,
        handling: Handling,
        handler: impl Fn(&Call, A, Vec<u8>) -> Outcome + Send + Sync + 'static,
    ) -> Self {
        let shape = shape::<A, T, E>();
        let is_known = self.procedures.iter().any(|procedure| procedure.name == name);
        assert!(!is_known, "the service {:?} has two procedures {name:?}", self.name);
        let waits = handling == Handling::Inline && Schema::text_of::<A>().contains(MEMORY_WORD);
        assert!(!waits, "the inline procedure {name:?} takes bulk memory; a handler that waits is pooled");
        let streams = |text: &str| Schema::occurrences(text, stream::WORD);
        let in_result = streams(&Schema::text_of::<T>());
        assert!(streams(&shape) == in_result, "the procedure {name:?} has a stream that is no part of its result");
        assert!(in_result <= 1, "the result of the procedure {name:?} has two streams; one is allowed");
        let waits = handling == Handling::Inline && in_result > 0;
        assert!(!waits, "the inline procedure {name:?} returns a stream; a handler with a stream is pooled");
        let has_memory = Schema::text_of::<E>().contains(MEMORY_WORD);
        assert!(!has_memory, "an error of the procedure {name:?} has memory; return it in a result");
        let may_write = Schema::text_of::<T>().contains(bulk::Write::WORD);
        assert!(!may_write, "the result of the procedure {name:?} has memory to write; callers can only read memory");
        let run = move |call: &Call, arguments: Decoder<'_>, out: Vec<u8>| match farside_wire::decode::<A>(arguments, 0)
        {
            Err(error) => Outcome::Undecodable(error.to_string()),
            Ok(arguments) => handler(call, arguments, out),
        };
        self.procedures.push(Procedure { name, shape, handling, run: Arc::new(run) });
        self
    }

    pub(crate) fn procedures(&self) -> &[Procedure] {
        &self.procedures
    }
}

impl fmt::Debug for Procedure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, shape, handling, run: _ } = self;
        f.debug_struct("Procedure")
            .field("name", name)
            .field("shape", shape)
            .field("handling", handling)
            .finish_non_exhaustive()
    }
}
