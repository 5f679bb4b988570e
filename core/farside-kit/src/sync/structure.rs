//! Structures that are found by name and changed where they are: the remote operations of RDMO (Liu
//! et al.), by calls.
//!
//! A structure belongs to the worker that has registered it. Its *directory*, a worker chosen by
//! the hash of the name, knows where it is. Operations are functions of the owner, identified by
//! the hash of their names. They run as handlers on the owner's thread, so each is one atomic step
//! and needs no lock.

use std::any::{Any, type_name};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::marker::PhantomData;
use std::panic::resume_unwind;
use std::rc::Rc;

use farside::kit::WorkerParts as _;
use farside::wire::hash_name;
use farside::{Pending, PerWorker, Wire, Worker};
use farside_fabric::WorkerId;

use super::error::{Result, SyncError};
use super::operation::{After, Guarded, Outcome};

/// The largest number of structures at one worker, and of names in one directory.
const STRUCTURES_MAX: usize = 1 << 16;

/// The name and the types of an operation on structures of type `T`.
pub struct Operation<T, A, R> {
    name: &'static str,
    types: PhantomData<fn(&mut T, A) -> R>,
}

impl<T, A, R> Operation<T, A, R> {
    /// Returns the operation of this name.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self { name, types: PhantomData }
    }
}

impl<T, A, R> Clone for Operation<T, A, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, A, R> Copy for Operation<T, A, R> {}

impl<T, A, R> fmt::Debug for Operation<T, A, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Operation").field(&self.name).finish()
    }
}

/// The structures of a job, by name. A handle that may travel: copies stand for the same structures
/// everywhere.
///
/// ```no_run
/// use std::collections::BTreeMap;
///
/// use farside::prelude::*;
/// use farside_kit::sync::{Operation, Structures};
///
/// type Scores = BTreeMap<String, u64>;
/// const RAISE: Operation<Scores, (String, u64), u64> = Operation::new("raise");
///
/// # fn example(me: &Worker) -> farside::Result<()> {
/// let structures = Structures::new(me)?;
/// if me.id().number() == 0 {
///     let scores = structures.structure(Scores::new()).operation(RAISE, |scores, (who, by)| {
///         let score = scores.entry(who).or_default();
///         *score += by;
///         *score
///     });
///     scores.register(me, "scores")?;
/// }
/// me.barrier()?;
/// let scores = structures.find::<Scores>(me, "scores")?;
/// let score = scores.run(me, RAISE, ("anna".to_owned(), 3))?;
/// # Ok(())
/// # }
/// ```
///
/// An operation that panics does so for its caller
/// ([`Error::RemotePanic`](farside::Error::RemotePanic)), and poisons the structure: see
/// [`Combining`](super::Combining). Workers that run the owner's binary find its structures; others
/// do not.
///
/// When the owner's process dies, its structures are gone and their names are free again. Workers
/// that have found them get [`Error::PeerLost`](farside::Error::PeerLost), others
/// [`SyncError::NoStructure`]. When the directory of a name dies, the structure can no longer be
/// found.
#[derive(Clone, Copy, Debug, Wire)]
#[wire(word = "farside::Structures")]
pub struct Structures {
    parts: PerWorker<Part>,
}

/// The state of one worker.
#[derive(Debug, Default)]
struct Part {
    /// This worker's own structures, by number.
    own: RefCell<HashMap<u32, Rc<dyn Any>>>,
    registered: Cell<u32>,
    /// The structures whose directory is this worker, by name.
    directory: RefCell<HashMap<String, Listed>>,
}

/// A directory's entry.
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
struct Listed {
    owner: WorkerId,
    number: u32,
    type_name: String,
}

/// A structure at its owner.
struct Owned<T> {
    guarded: RefCell<Guarded<T>>,
    /// By the hashes of the operations' names; each is a `fn(&mut T, A) -> R`.
    operations: HashMap<u64, Box<dyn Any>>,
}

/// A structure to be registered. Made by [`Structures::structure`].
#[must_use = "no worker can find it before `register`"]
pub struct NewStructure<T> {
    structures: Structures,
    owned: Owned<T>,
}

/// A structure that was found. A handle, valid as long as the job. Every worker gets its own by
/// name.
pub struct Structure<T> {
    structures: Structures,
    owner: WorkerId,
    number: u32,
    of: PhantomData<fn(T)>,
}

/// The reason why an operation did not run at the owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
enum Refusal {
    NoStructure,
    NoOperation,
    Poisoned,
    Busy,
}

/// The outcome of an operation: its [result](Self::into_result), or the reason why it did not run.
#[derive(Debug, Wire)]
pub struct OperationResult<R>(Result<R, Refusal>);

impl Structures {
    /// Makes the structures of a job. All workers of the job call this, in the same order as other
    /// collectives.
    ///
    /// # Errors
    /// Those of [`PerWorker::new`].
    pub fn new(me: &Worker) -> Result<Self> {
        let parts = PerWorker::new(me, Part::default())?;
        let lose = move |me: &Worker, process| {
            parts.here(me).directory.borrow_mut().retain(|_, listed| me.process_of(listed.owner) != process);
        };
        me.when_lost(lose);
        // A process lost during this call may already have registered something.
        me.outlived_processes().into_iter().for_each(|process| lose(me, process));
        Ok(Self { parts })
    }

    /// Returns a structure to be registered.
    pub fn structure<T: 'static>(self, value: T) -> NewStructure<T> {
        let owned = Owned { guarded: RefCell::new(Guarded::new(value)), operations: HashMap::new() };
        NewStructure { structures: self, owned }
    }

    /// Finds a structure by its name. Waits for the directory's answer, so handlers must not call
    /// it.
    ///
    /// # Errors
    /// [`SyncError::NoStructure`], [`SyncError::OtherType`]; those of a call and of waiting for its
    /// result.
    pub fn find<T: 'static>(self, me: &Worker, name: &str) -> Result<Structure<T>> {
        let asked = (self.parts, name.to_owned());
        let listed =
            me.call_return(directory(me, name), asked, |there, (parts, name): (PerWorker<Part>, String)| {
                parts.here(there).directory.borrow().get(&name).cloned()
            })?;
        match listed.wait()? {
            None => Err(SyncError::NoStructure { name: name.to_owned() }),
            Some(listed) if listed.type_name != type_name::<T>() => Err(SyncError::OtherType {
                name: name.to_owned(),
                registered: listed.type_name,
                wanted: type_name::<T>(),
            }),
            Some(Listed { owner, number, .. }) => Ok(Structure { structures: self, owner, number, of: PhantomData }),
        }
    }

    /// Takes back the structure that this worker has registered under this name. Others no longer
    /// find it, and their operations on it are refused. Handlers must not call it.
    ///
    /// # Errors
    /// [`SyncError::NoStructure`] if this worker has registered no structure of this name and type;
    /// those of a call and of waiting for its result; [`SyncError::Poisoned`].
    pub fn remove<T: 'static>(self, me: &Worker, name: &str) -> Result<T> {
        // Checked first, while the name is still listed.
        me.not_in_handler("taking a structure back")?;
        let asked = (self.parts, name.to_owned(), me.id(), type_name::<T>().to_owned());
        let removed = me.call_return(directory(me, name), asked, unlist)?.wait()?;
        let own = removed.and_then(|number| self.parts.here(me).own.borrow_mut().remove(&number));
        let owned = own.and_then(|own| Rc::downcast::<Owned<T>>(own).ok()).and_then(Rc::into_inner);
        let Some(owned) = owned else { return Err(SyncError::NoStructure { name: name.to_owned() }) };
        let Guarded { value, is_poisoned } = owned.guarded.into_inner();
        if is_poisoned { Err(SyncError::Poisoned) } else { Ok(value) }
    }
}

impl<T: 'static> NewStructure<T> {
    /// Adds an operation: a function that captures nothing.
    ///
    /// # Panics
    /// If the structure has an operation of this name.
    #[track_caller]
    pub fn operation<A: 'static, R: 'static>(
        mut self,
        operation: Operation<T, A, R>,
        function: fn(&mut T, A) -> R,
    ) -> Self {
        let other = self.owned.operations.insert(hash_name(operation.name), Box::new(function));
        assert!(other.is_none(), "{}: two operations with one name", operation.name);
        self
    }

    /// Registers the structure under this name. It belongs to this worker, on whose thread its
    /// operations run. When this returns, other workers can find it. Handlers must not call it.
    ///
    /// # Errors
    /// [`SyncError::NameTaken`]; [`SyncError::Full`] if there are 65 536; those of a call and of
    /// waiting for its result.
    pub fn register(self, me: &Worker, name: &str) -> Result<Structure<T>> {
        me.not_in_handler("registering a structure")?;
        let Self { structures, owned } = self;
        let here = structures.parts.here(me);
        if here.own.borrow().len() >= STRUCTURES_MAX {
            return Err(full());
        }
        // Numbers are not reused, so that a handle of a removed structure finds nothing.
        let number = here.registered.get().checked_add(1).ok_or_else(full)?;
        here.registered.set(number);
        // Before the name is listed: a worker that has found it may call at once.
        here.own.borrow_mut().insert(number, Rc::new(owned));
        let listed = Listed { owner: me.id(), number, type_name: type_name::<T>().to_owned() };
        let arguments = (structures.parts, name.to_owned(), listed);
        let call = me.call_return(directory(me, name), arguments.clone(), list);
        let listed = call.map_err(SyncError::from).and_then(|asked| Ok(asked.wait()?));
        let refused = match listed {
            Ok(Ok(())) => return Ok(Structure { structures, owner: me.id(), number, of: PhantomData }),
            Ok(Err(Some(owner))) => SyncError::NameTaken { name: name.to_owned(), owner },
            Ok(Err(None)) => full(),
            Err(error) => {
                // The name may be listed, or be listed later.
                let _ = me.call(directory(me, name), arguments, retract);
                error
            }
        };
        here.own.borrow_mut().remove(&number);
        Err(refused)
    }
}

impl<T: 'static> Structure<T> {
    /// Returns the structure's owner.
    pub fn owner(self) -> WorkerId {
        self.owner
    }

    /// Runs an operation on the structure, at its owner, and waits for the result. Handlers must
    /// not call it.
    ///
    /// *Cost*: one [`call_return`](Worker::call_return), and two look-ups at the owner.
    ///
    /// # Errors
    /// [`SyncError::NoOperation`]; [`SyncError::NoStructure`] if it was removed;
    /// [`SyncError::Poisoned`]; [`SyncError::Busy`] while its owner [works on it](Self::with);
    /// those of a call and of waiting for its result.
    pub fn run<A: Wire + 'static, R: Wire + 'static>(
        self,
        me: &Worker,
        operation: Operation<T, A, R>,
        arguments: A,
    ) -> Result<R> {
        me.not_in_handler("running an operation")?;
        self.start(me, operation, arguments)?.wait()?.into_result(operation)
    }

    /// Starts an operation on the structure; the caller takes the result later. Handlers may call
    /// it, and use [`Pending::then`].
    ///
    /// # Errors
    /// Those of a call.
    pub fn start<A: Wire + 'static, R: Wire + 'static>(
        self,
        me: &Worker,
        operation: Operation<T, A, R>,
        arguments: A,
    ) -> Result<Pending<'_, OperationResult<R>>> {
        let asked = (self.structures.parts, self.number, hash_name(operation.name), arguments);
        Ok(me.call_return(self.owner, asked, run_operation::<T, A, R>)?)
    }

    /// Works on the structure at its owner, in handlers, too. If `work` waits for something,
    /// operations of others are refused meanwhile with [`SyncError::Busy`].
    ///
    /// # Errors
    /// [`SyncError::NoStructure`] if this worker is not its owner; [`SyncError::Busy`];
    /// [`SyncError::Poisoned`].
    ///
    /// # Panics
    /// If `work` panics.
    pub fn with<R>(self, me: &Worker, work: impl FnOnce(&mut T) -> R) -> Result<R> {
        self.work_on(me, After::Refuse, work)
    }

    /// Like [`with`](Self::with), but also works on a poisoned structure, and clears the poison.
    ///
    /// # Errors
    /// Those of [`with`](Self::with), except [`SyncError::Poisoned`].
    ///
    /// # Panics
    /// If `work` panics.
    pub fn repair<R>(self, me: &Worker, work: impl FnOnce(&mut T) -> R) -> Result<R> {
        self.work_on(me, After::Mend, work)
    }

    fn work_on<R>(self, me: &Worker, after: After, work: impl FnOnce(&mut T) -> R) -> Result<R> {
        let own = (self.owner == me.id()).then(|| self.structures.parts.here(me).owned::<T>(self.number)).flatten();
        let own = own.ok_or_else(|| SyncError::NoStructure { name: type_name::<T>().to_owned() })?;
        let mut guarded = own.guarded.try_borrow_mut().map_err(|_| SyncError::Busy)?;
        let outcome = guarded.run(after, work);
        drop(guarded);
        outcome.into_result()
    }
}

impl<R> OperationResult<R> {
    /// Returns the result of the [started](Structure::start) operation.
    ///
    /// # Errors
    /// [`SyncError::NoOperation`], [`SyncError::NoStructure`], [`SyncError::Poisoned`],
    /// [`SyncError::Busy`].
    pub fn into_result<T, A>(self, operation: Operation<T, A, R>) -> Result<R> {
        let why = match self.0 {
            Ok(result) => return Ok(result),
            Err(Refusal::NoStructure) => SyncError::NoStructure { name: type_name::<T>().to_owned() },
            Err(Refusal::NoOperation) => SyncError::NoOperation { operation: operation.name },
            Err(Refusal::Poisoned) => SyncError::Poisoned,
            Err(Refusal::Busy) => SyncError::Busy,
        };
        Err(why)
    }
}

fn full() -> SyncError {
    SyncError::Full { max: STRUCTURES_MAX }
}

/// Returns the directory of a name.
fn directory(me: &Worker, name: &str) -> WorkerId {
    WorkerId::new((hash_name(name) % u64::from(me.worker_count())) as u32)
}

// The functions below run at the directory or the owner.

/// Lists a structure. Otherwise returns the owner of the name, or `None` if the directory is full.
fn list(there: &Worker, (parts, name, listed): (PerWorker<Part>, String, Listed)) -> Result<(), Option<WorkerId>> {
    let mut directory = parts.here(there).directory.borrow_mut();
    let is_full = directory.len() >= STRUCTURES_MAX;
    match directory.entry(name) {
        Entry::Occupied(other) => Err(Some(other.get().owner)),
        Entry::Vacant(_) if is_full => Err(None),
        Entry::Vacant(free) => {
            free.insert(listed);
            Ok(())
        }
    }
}

/// Removes an entry if it is listed.
fn retract(there: &Worker, (parts, name, listed): (PerWorker<Part>, String, Listed)) {
    let mut directory = parts.here(there).directory.borrow_mut();
    if directory.get(&name) == Some(&listed) {
        directory.remove(&name);
    }
}

/// Removes the entry of a structure, if it belongs to `owner`, and returns the structure's number.
fn unlist(there: &Worker, (parts, name, owner, type_name): (PerWorker<Part>, String, WorkerId, String)) -> Option<u32> {
    let mut directory = parts.here(there).directory.borrow_mut();
    directory.get(&name).filter(|listed| listed.owner == owner && listed.type_name == type_name)?;
    directory.remove(&name).map(|listed| listed.number)
}

fn run_operation<T: 'static, A: 'static, R: 'static>(
    there: &Worker,
    (parts, number, operation, arguments): (PerWorker<Part>, u32, u64, A),
) -> OperationResult<R> {
    let run = || {
        let own = parts.here(there).owned::<T>(number).ok_or(Refusal::NoStructure)?;
        let function =
            own.operations.get(&operation).and_then(|function| function.downcast_ref::<fn(&mut T, A) -> R>());
        let function = function.ok_or(Refusal::NoOperation)?;
        let mut guarded = own.guarded.try_borrow_mut().map_err(|_| Refusal::Busy)?;
        let outcome = guarded.run(After::Refuse, |value| function(value, arguments));
        drop(guarded);
        match outcome {
            Outcome::Returned(result) => Ok(result),
            Outcome::Poisoned => Err(Refusal::Poisoned),
            // The code that answers the call catches the panic for the caller.
            Outcome::Panicked(panic) => resume_unwind(panic),
        }
    };
    OperationResult(run())
}

impl Part {
    fn owned<T: 'static>(&self, number: u32) -> Option<Rc<Owned<T>>> {
        let own = self.own.borrow().get(&number).cloned()?;
        own.downcast().ok()
    }
}

impl<T> Clone for Structure<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Structure<T> {}

impl<T> fmt::Debug for Structure<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Structure").field("owner", &self.owner).field("type", &type_name::<T>()).finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for NewStructure<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operations = self.owned.operations.len();
        f.debug_struct("NewStructure").field("operations", &operations).finish_non_exhaustive()
    }
}
