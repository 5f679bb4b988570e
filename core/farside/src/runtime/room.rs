//! Rooms: the parts of the library that build on the runtime, without being named by it.
//!
//! A room implements [`Room`]. The runtime makes its state in every process and every worker. It
//! hands the room the service messages with its tag, tells it of losses, and gives it a share of
//! progress. A new room changes no file of the runtime.
//!
//! The rooms that every process has are listed in `crate::rooms::ROOMS`. A room of another crate is
//! in no list: it is in the program's table of functions ([`register_room`]), and in each process
//! of that program. The entry is emitted by the cold branch of every access to the room's state,
//! which no program can reach the state without. So the table has the room exactly if the linker
//! has put such an access into the program; nothing runs before `main`, and no access pays for it.
//! Programs of one job may differ: a process that receives a message for a room that it does not
//! have answers with [`ABSENT`], and the sender's room decides about it ([`Room::find_absent`]).
//!
//! | to | use |
//! |---|---|
//! | reach the room's state in a process | [`Process::room`] |
//! | reach its state in a worker | [`Worker::room`](crate::Worker) (crate-private) |
//! | send a message to the same room of a peer | [`Process::send`] |
//! | have workers that make progress call [`Room::serve`] | [`Rooms::set_busy`] |
//!
//! *Cost*: reaching a room's state is one load from a fixed place and one comparison of a type ID,
//! which the CPU predicts. There is no lock and no hash.

use std::any::TypeId;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use farside_fabric::{ProcessId, Transport};
use farside_wire::check::MessageKind;
use farside_wire::{Decoder, Wire};

use super::home::Shape;
use super::process::Process;
use super::worker::Worker;
use crate::error::Result;
use crate::invoke::table::register_room;
use farside_launch::settings::Settings;

/// The number of tags, which bounds the number of rooms.
///
/// 1 memory, 2 check, 3 global, 4 heap, 5 pipe, 9 tasks, 10 extensions.
const TAG_COUNT: usize = 16;

/// Set in the first byte of a room's message, together with its tag. Not set in the runtime's own
/// messages.
pub(crate) const TAG_BIT: u8 = 0x80;

/// Set together with [`TAG_BIT`] and the tag in the one byte that answers a message for a room that
/// the receiver does not have.
const ABSENT: u8 = 0x40;

/// A part of the library that builds on the runtime. The implementing type is its state in one
/// process.
pub trait Room: Debug + Send + Sync + Sized + 'static {
    /// The room's number in messages and in the table of states. Unique and below 16.
    const TAG: u8;

    /// A message between the room's instances in different processes. `()` if there are none.
    type Message: Wire + Debug;

    /// The room's state in each worker. `()` if it has none.
    type Local: Debug + 'static;

    /// Makes the state of a process, before the process exists.
    fn new(seed: &Seed<'_>) -> Self;

    /// Makes the state of a worker: thread `local` of the process.
    fn local(&self, process: &Arc<Process>, local: usize) -> Self::Local;

    /// Called once, when the process exists and nothing has been sent or received yet.
    fn begin(&self, _process: &Process) {}

    /// Takes a message from the same room of the process `from`. Runs on the thread that takes in
    /// events, and must not wait. Drops an invalid or forbidden request. No message ends this
    /// process, so there is no error.
    fn take(&self, _process: &Arc<Process>, _from: ProcessId, _message: Self::Message) {}

    /// Ends the waits for a process that does not have this room. Called when it has received a
    /// message of this room.
    fn find_absent(&self, _process: &Arc<Process>, _absent: ProcessId) {}

    /// Drops what was meant for a lost process.
    fn lose(&self, _process: &Process, _lost: ProcessId) {}

    /// Does the room's share of the service thread's work, without waiting.
    ///
    /// Workers call it as well: those that wait, and, while the room is busy (`Rooms::set_busy`),
    /// those that make progress.
    fn serve(&self, _process: &Arc<Process>) -> Served {
        Served::NOTHING
    }

    /// Frees what no process can reach any more, which may take milliseconds. Only the service
    /// thread and waiting workers in its place call it. Returns whether there may be more.
    fn clean_up(&self, _process: &Process) -> bool {
        false
    }

    /// Ends the room's own threads, after the workers and the service thread of the process have
    /// ended.
    fn stop(&self, _process: &Process) {}

    /// Returns whether the room has no work left for calls that have run here.
    fn is_settled(&self) -> bool {
        true
    }

    /// Returns whether `worker` has no work of the room left that must end before the job does.
    ///
    /// # Errors
    /// An error for the body of the worker.
    fn is_over(&self, _worker: &Worker) -> Result<bool> {
        Ok(self.is_settled())
    }
}

/// The inputs to a room's state.
#[derive(Debug)]
pub struct Seed<'a> {
    pub(crate) id: ProcessId,
    pub(crate) shape: Shape,
    pub(crate) settings: &'a Settings,
    pub(crate) transport: &'a Arc<dyn Transport>,
}

/// The outcome of a room's share of progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    /// True if anything was done.
    pub moved: bool,
    /// The latest time to serve the room again, if nothing else happens.
    pub again: Option<Instant>,
}

impl Served {
    /// There was nothing to do, and there will be nothing until an event.
    pub const NOTHING: Self = Self { moved: false, again: None };

    fn and(self, other: Self) -> Self {
        let again = [self.again, other.again].into_iter().flatten().min();
        Self { moved: self.moved | other.moved, again }
    }
}

/// A room in the list of rooms.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoomEntry {
    tag: u8,
    kind: fn() -> TypeId,
    make: fn(&Seed<'_>) -> Slot<dyn AnyRoom>,
    message_kind: fn() -> MessageKind,
}

impl RoomEntry {
    /// Returns the room's tag.
    #[cfg(test)]
    pub(crate) fn tag(&self) -> u8 {
        self.tag
    }

    /// Returns the entry of `R`.
    pub(crate) const fn of<R: Room>() -> Self {
        assert!((R::TAG as usize) < TAG_COUNT, "a room's tag must be below 16");
        Self {
            tag: R::TAG,
            kind: TypeId::of::<R>,
            make: |seed| Slot { kind: TypeId::of::<R>(), state: Box::new(R::new(seed)) },
            message_kind: MessageKind::of::<R::Message>,
        }
    }

    /// Returns the room's message, for tests of its decoder.
    pub(crate) fn message_kind(&self) -> MessageKind {
        (self.message_kind)()
    }
}

/// The rooms of one process.
#[derive(Debug)]
pub(crate) struct Rooms {
    by_tag: [Option<Slot<dyn AnyRoom>>; TAG_COUNT],
    /// The tags of rooms that want workers to serve them. Written by the rooms, read by workers
    /// that make progress.
    busy: AtomicU32,
}

impl Rooms {
    /// Makes the rooms of a process. An entry may occur repeatedly.
    ///
    /// # Panics
    /// If two rooms have the same tag.
    pub(crate) fn new<'a>(entries: impl IntoIterator<Item = &'a RoomEntry>, seed: &Seed<'_>) -> Self {
        let mut by_tag = [const { None }; TAG_COUNT];
        for entry in entries {
            let place: &mut Option<Slot<dyn AnyRoom>> = &mut by_tag[entry.tag as usize];
            match place {
                None => *place = Some((entry.make)(seed)),
                Some(slot) => assert!(slot.kind == (entry.kind)(), "two rooms have the tag {}", entry.tag),
            }
        }
        Self { by_tag, busy: AtomicU32::new(0) }
    }

    /// Returns the state of `R` in this process.
    #[inline(always)]
    pub(crate) fn get<R: Room>(&self) -> &R {
        match &self.by_tag[R::TAG as usize] {
            Some(slot) if slot.kind == TypeId::of::<R>() => {
                let state: *const dyn AnyRoom = &*slot.state;
                // SAFETY: `kind` is the type of what `state` holds: both were set from one `R` in
                // `RoomEntry::of` and neither changes. The reference lives as long as the borrow of
                // `self`, which owns the state.
                unsafe { &*state.cast::<R>() }
            }
            _ => absent::<R>(),
        }
    }

    /// Makes the state of all rooms in a worker.
    pub(crate) fn locals(&self, process: &Arc<Process>, local: usize) -> LocalRooms {
        LocalRooms {
            by_tag: self.by_tag.each_ref().map(|slot| slot.as_ref().map(|slot| slot.state.local(process, local))),
        }
    }

    /// Sets whether workers that make progress serve this room. Returns the previous value.
    pub(crate) fn set_busy<R: Room>(&self, is_busy: bool) -> bool {
        // Relaxed: this publishes nothing. A worker that sees it late serves the room one step
        // later, and the service thread serves it anyway.
        let before = match is_busy {
            true => self.busy.fetch_or(1 << R::TAG, Ordering::Relaxed),
            false => self.busy.fetch_and(!(1 << R::TAG), Ordering::Relaxed),
        };
        before & 1 << R::TAG != 0
    }

    /// Returns whether workers that make progress serve this room.
    #[inline(always)]
    pub(crate) fn is_busy<R: Room>(&self) -> bool {
        self.busy.load(Ordering::Relaxed) & 1 << R::TAG != 0
    }

    /// Returns whether any room wants workers to serve it.
    #[inline(always)]
    pub(crate) fn are_busy(&self) -> bool {
        self.busy.load(Ordering::Relaxed) != 0
    }

    fn all(&self) -> impl Iterator<Item = &dyn AnyRoom> {
        self.by_tag.iter().flatten().map(|slot| &*slot.state)
    }

    pub(crate) fn begin(&self, process: &Process) {
        self.all().for_each(|room| room.begin(process));
    }

    /// Hands a service message to its room. If this process does not have the room, answers that.
    pub(crate) fn take(&self, process: &Arc<Process>, from: ProcessId, message: &[u8]) {
        let Some((&first, message)) = message.split_first() else { return };
        let tag = first & !TAG_BIT & !ABSENT;
        let Some(slot) = self.by_tag.get(tag as usize) else { return };
        match (slot, first & ABSENT != 0) {
            (Some(slot), false) => slot.state.take(process, from, message),
            (Some(slot), true) => slot.state.find_absent(process, from),
            // A sender that is gone needs no answer.
            (None, false) => _ = process.send_bytes(from, vec![first | ABSENT]),
            (None, true) => {}
        }
    }

    pub(crate) fn lose(&self, process: &Process, lost: ProcessId) {
        self.all().for_each(|room| room.lose(process, lost));
    }

    /// Serves all rooms and lets them clean up, or only serves those that are busy.
    pub(crate) fn serve(&self, process: &Arc<Process>, only_busy: bool) -> Served {
        let which = if only_busy { self.busy.load(Ordering::Relaxed) } else { u32::MAX };
        let mut served = Served::NOTHING;
        for (tag, slot) in self.by_tag.iter().enumerate() {
            if let Some(slot) = slot
                && which & (1 << tag) != 0
            {
                served = served.and(slot.state.serve(process));
                if !only_busy && slot.state.clean_up(process) {
                    served = served.and(Served { moved: false, again: Some(process.clock().now()) });
                }
            }
        }
        served
    }

    pub(crate) fn stop(&self, process: &Process) {
        self.all().for_each(|room| room.stop(process));
    }

    pub(crate) fn are_settled(&self) -> bool {
        self.all().all(AnyRoom::is_settled)
    }

    pub(crate) fn are_over(&self, worker: &Worker) -> Result<bool> {
        self.all().try_fold(true, |over, room| Ok(over & room.is_over(worker)?))
    }
}

/// The states of all rooms in one worker.
#[derive(Debug)]
pub(crate) struct LocalRooms {
    by_tag: [Option<Slot<dyn AnyLocal>>; TAG_COUNT],
}

impl LocalRooms {
    /// Returns the state of `R` in this worker.
    #[inline(always)]
    pub(crate) fn get<R: Room>(&self) -> &R::Local {
        match &self.by_tag[R::TAG as usize] {
            Some(slot) if slot.kind == TypeId::of::<R>() => {
                let state: *const dyn AnyLocal = &*slot.state;
                // SAFETY: `kind` is `R`, and then `state` is an `R::Local`: both were set from one
                // `R` in `AnyRoom::local` and neither changes. The reference lives as long as the
                // borrow of `self`, which owns the state.
                unsafe { &*state.cast::<R::Local>() }
            }
            _ => absent::<R>(),
        }
    }
}

/// A state and the room that it belongs to.
#[derive(Debug)]
struct Slot<T: ?Sized> {
    /// The type of the room.
    kind: TypeId,
    state: Box<T>,
}

/// Registers the room, in that the program has this function; to run it is a mistake.
#[cold]
#[inline(never)]
fn absent<R: Room>() -> ! {
    let (name, entry) = (std::any::type_name::<R>(), register_room::<R>());
    panic!(
        "{name} is not among the rooms of this process: its entry at {entry:#x} is outside the main program, perhaps in a \
         dynamic library; link it statically"
    )
}

/// The state of any room in a worker.
trait AnyLocal: Debug {}

impl<T: Debug> AnyLocal for T {}

/// A [`Room`] of unknown type.
trait AnyRoom: Debug + Send + Sync {
    fn local(&self, process: &Arc<Process>, local: usize) -> Slot<dyn AnyLocal>;
    fn begin(&self, process: &Process);
    fn take(&self, process: &Arc<Process>, from: ProcessId, message: &[u8]);
    fn find_absent(&self, process: &Arc<Process>, absent: ProcessId);
    fn lose(&self, process: &Process, lost: ProcessId);
    fn serve(&self, process: &Arc<Process>) -> Served;
    fn clean_up(&self, process: &Process) -> bool;
    fn stop(&self, process: &Process);
    fn is_settled(&self) -> bool;
    fn is_over(&self, worker: &Worker) -> Result<bool>;
}

impl<R: Room> AnyRoom for R {
    fn local(&self, process: &Arc<Process>, local: usize) -> Slot<dyn AnyLocal> {
        Slot { kind: TypeId::of::<R>(), state: Box::new(Room::local(self, process, local)) }
    }

    fn begin(&self, process: &Process) {
        Room::begin(self, process);
    }

    fn take(&self, process: &Arc<Process>, from: ProcessId, message: &[u8]) {
        if let Ok(message) = farside_wire::decode(Decoder::new(message), 0) {
            Room::take(self, process, from, message);
        }
    }

    fn find_absent(&self, process: &Arc<Process>, absent: ProcessId) {
        Room::find_absent(self, process, absent);
    }

    fn lose(&self, process: &Process, lost: ProcessId) {
        Room::lose(self, process, lost);
    }

    fn serve(&self, process: &Arc<Process>) -> Served {
        Room::serve(self, process)
    }

    fn clean_up(&self, process: &Process) -> bool {
        Room::clean_up(self, process)
    }

    fn stop(&self, process: &Process) {
        Room::stop(self, process);
    }

    fn is_settled(&self) -> bool {
        Room::is_settled(self)
    }

    fn is_over(&self, worker: &Worker) -> Result<bool> {
        Room::is_over(self, worker)
    }
}

/// Encodes a service message of a room: its tag and the message.
pub(crate) fn encode<R: Room>(message: &R::Message) -> Vec<u8> {
    farside_wire::encode(message, vec![TAG_BIT | R::TAG])
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::WorkerId;
    use crate::runtime::process::lock;

    /// A room that is in no list.
    #[derive(Debug, Default)]
    struct Probe {
        received: Mutex<Vec<u32>>,
        absent: Mutex<Vec<ProcessId>>,
    }

    const TAG: u8 = 15;
    /// The tag of no room.
    const FREE_TAG: u8 = 14;

    impl Room for Probe {
        const TAG: u8 = TAG;
        type Message = u32;
        type Local = usize;

        fn new(_: &Seed<'_>) -> Self {
            Self::default()
        }

        fn local(&self, _: &Arc<Process>, local: usize) -> usize {
            local
        }

        fn take(&self, _: &Arc<Process>, _: ProcessId, message: u32) {
            lock(&self.received).push(message);
        }

        fn find_absent(&self, _: &Arc<Process>, absent: ProcessId) {
            lock(&self.absent).push(absent);
        }
    }

    #[test]
    fn a_room_registers_itself_by_being_used() {
        let run = |me: &Worker| {
            let process = me.process_handle();
            assert_eq!(*me.room::<Probe>(), me.thread_index());
            process.send::<Probe>(ProcessId::new(1 - process.id().number()), &me.id().number())?;
            let received = || lock(&process.room::<Probe>().received).len() == 2;
            me.wait_while_serving(received)?;
            me.barrier()
        };
        crate::simulate(2, 2, 1, run).unwrap();
    }

    /// The answer to a message for a room that the receiver does not have reaches the same room of
    /// the sender, and is not answered.
    #[test]
    fn a_message_for_an_absent_room_is_answered() {
        let run = |me: &Worker| {
            let process = me.process_handle();
            let peer = ProcessId::new(1 - process.id().number());
            let absent = || lock(&process.room::<Probe>().absent).clone();
            if me.id() == WorkerId::new(0) {
                // The peer answers it, and no room here has the tag.
                process.send_bytes(peer, vec![TAG_BIT | FREE_TAG, 1, 2, 3])?;
                process.send_bytes(peer, vec![TAG_BIT | ABSENT | FREE_TAG])?;
                process.send_bytes(peer, vec![TAG_BIT | ABSENT | TAG])?;
            } else {
                me.wait_while_serving(|| absent() == [peer])?;
            }
            me.barrier()?;
            assert_eq!(absent().len() as u32, me.id().number(), "an answer was answered");
            assert!(lock(&process.room::<Probe>().received).is_empty());
            me.barrier()
        };
        crate::simulate(2, 1, 1, run).unwrap();
    }

    #[test]
    #[should_panic(expected = "two rooms have the tag 15")]
    fn two_rooms_must_not_have_one_tag() {
        #[derive(Debug)]
        struct Other;

        impl Room for Other {
            const TAG: u8 = TAG;
            type Message = ();
            type Local = ();

            fn new(_: &Seed<'_>) -> Self {
                Self
            }

            fn local(&self, _: &Arc<Process>, _: usize) {}
        }

        crate::simulate(1, 1, 1, |me| {
            let process = me.process_handle();
            let seed = Seed {
                id: process.id(),
                shape: process.shape(),
                settings: process.settings(),
                transport: process.transport(),
            };
            Rooms::new(&[RoomEntry::of::<Probe>(), RoomEntry::of::<Probe>(), RoomEntry::of::<Other>()], &seed);
            Ok(())
        })
        .unwrap();
    }
}
