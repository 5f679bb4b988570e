//! The table of functions that other processes can call, and the names of its entries.
//!
//! A closure has no name that another process could look up, and its address differs from process
//! to process. But all processes of a job run one binary, so the *linker* can make the list. Every
//! place in the program that calls a function remotely is generic over that function's types. An
//! `asm!` block in it emits one entry into the section `farside_calls` for each instance. The entry
//! is a distance and not an address, so the section needs no relocation. An entry's index means the
//! same in every process, and that index is what travels.
//!
//! A receiver runs only functions in its own table, and each checks the size of its arguments
//! first. The rooms of other crates are in the table, too ([`register_room`]), so a process has a
//! room exactly if its program can reach it. The name of a function pointer has a second half: an
//! offset into the program's text. The receiver accepts it only if a function begins there
//! (`farside_sys::image`).

use std::collections::HashMap;
use std::ptr::with_exposed_provenance;

use farside_sys::image::{Image, hash_bytes};

use crate::error::{Error, Result};
use crate::invoke::caller::Caller;
use crate::invoke::named::NAMED;
use crate::runtime::room::{Room, RoomEntry};
use crate::runtime::worker::Worker;

/// Takes a record apart and runs it. Returns the end of the record, or null if the record is
/// malformed.
///
/// # Safety
/// The bytes from the first pointer to the second are the payload of a record. A sender of this
/// binary made it for this very trampoline. The bytes are readable, and no thread writes them until
/// this returns.
pub(crate) type Trampoline = unsafe fn(&Worker, *const u8, *const u8, u32) -> *const u8;

/// A kind of call, with its types: an entry of the table.
pub trait Remote {
    /// Takes a record of this kind apart and runs it.
    ///
    /// # Safety
    /// The contract of [`Trampoline`].
    unsafe fn run(worker: &Worker, payload: *const u8, end: *const u8, operand: u32) -> *const u8;
}

/// A background function, which a process runs on a thread of its own, not on a worker:
/// [`Caller::run_in_background`].
pub trait Background: 'static {
    /// Runs the function. The bytes are those that its sender has passed, but check them: they may
    /// come from a process that is mistaken.
    fn run(here: &Caller, bytes: &[u8]);
}

/// One entry of the table. Written by the `asm!` block of `entry_address`, 8 bytes.
#[repr(C)]
struct Entry {
    /// The distance from this field to the function.
    distance: i32,
    /// [`LISTED`] if the function is a trampoline, [`BACKGROUND`] if it is of a [`Background`],
    /// [`ROOM`] if it returns a [`RoomEntry`], or another value in the entry that only makes the
    /// section exist.
    mark: u32,
}

const LISTED: u32 = 0x4661_7253;
const BACKGROUND: u32 = 0x4561_7253;
const ROOM: u32 = 0x5261_7253;

/// The maximum length of a table. No entry of any binary has this number.
const ENTRY_COUNT_MAX: usize = NAMED as usize;

#[used]
#[unsafe(link_section = "farside_calls")]
static FIRST: Entry = Entry { distance: 0, mark: 0 };

unsafe extern "C" {
    #[link_name = "__start_farside_calls"]
    static TABLE_START: [Entry; 0];
    #[link_name = "__stop_farside_calls"]
    static TABLE_END: [Entry; 0];
}

/// Emits the entry of a function with a mark, and evaluates to its address, in the table of the
/// program or library that this code is part of.
macro_rules! entry_address {
    ($mark:ident, $function:path) => {{
        let address: usize;
        // SAFETY: the block emits 8 bytes into a section of their own and computes an address; it
        // touches no memory, stack or flags.
        unsafe {
            std::arch::asm!(
                ".pushsection farside_calls,\"aR\",@progbits",
                ".p2align 2",
                "77:",
                ".long {function} - .",
                ".long {mark}",
                ".popsection",
                "lea {address}, [rip + 77b]",
                function = sym $function,
                mark = const $mark,
                address = lateout(reg) address,
                options(nomem, nostack, preserves_flags, pure),
            );
        }
        address
    }};
}

/// Emits the entry of a room, and returns its address.
///
/// Call this in code that the program has exactly if it can reach the room's state. Each process
/// of the program then has the room. Use the address, or the compiler leaves the entry out.
#[inline(always)]
pub(crate) fn register_room<R: Room>() -> usize {
    entry_address!(ROOM, RoomEntry::of::<R>)
}

/// The place of this program's entries in memory. Small, so that each call can carry a copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entries {
    start: usize,
    count: usize,
}

impl Entries {
    /// Returns the number of entry `T`.
    ///
    /// # Errors
    /// [`Error::ForeignFunction`] in code of a dynamic library, which has a table of its own.
    #[inline(always)]
    pub(crate) fn number_of<T: Remote>(&self) -> Result<u16> {
        self.number_at(entry_address!(LISTED, T::run))
    }

    /// Returns the number of a background function.
    ///
    /// # Errors
    /// [`Error::ForeignFunction`].
    pub(crate) fn number_of_background<B: Background>(&self) -> Result<u16> {
        self.number_at(entry_address!(BACKGROUND, B::run))
    }

    #[inline(always)]
    fn number_at(&self, address: usize) -> Result<u16> {
        let index = address.wrapping_sub(self.start) / size_of::<Entry>();
        if index < self.count { Ok(index as u16) } else { Err(foreign(address)) }
    }
}

/// The functions of this program that can be called.
#[derive(Debug)]
pub(crate) struct FunctionTable {
    entries: Entries,
    trampolines: Box<[Option<Trampoline>]>,
    /// The background functions, by the number of their entry.
    background: HashMap<u16, fn(&Caller, &[u8])>,
    rooms: Box<[RoomEntry]>,
    image: Image,
}

impl FunctionTable {
    /// Reads the table of this program.
    pub(crate) fn of_this_program() -> Result<Self> {
        let image = Image::of_this_program().map_err(|cause| Error::System {
            doing: "reading this program's image",
            cause: std::io::Error::other(cause),
        })?;
        let start = &raw const TABLE_START as usize;
        let count = (&raw const TABLE_END as usize - start) / size_of::<Entry>();
        if count > ENTRY_COUNT_MAX {
            return Err(Error::TooLarge {
                what: "a table of remote functions",
                bytes: count,
                max: ENTRY_COUNT_MAX,
                remedy: "call fewer different functions",
            });
        }
        let address = |index: usize| start + index * size_of::<Entry>();
        let trampolines = (0..count).map(|index| listed(address(index))).collect();
        let background = (0..count).filter_map(|index| Some((index as u16, background(address(index))?))).collect();
        let rooms = (0..count).filter_map(|index| room(address(index))).map(|room| room()).collect();
        Ok(Self { entries: Entries { start, count }, trampolines, background, rooms, image })
    }

    /// The place of the entries.
    #[inline]
    pub(crate) fn entries(&self) -> Entries {
        self.entries
    }

    /// The rooms that have registered themselves. A room may occur repeatedly.
    pub(crate) fn rooms(&self) -> &[RoomEntry] {
        &self.rooms
    }

    /// Returns the part of the table that a process may call: all of it if the process runs this
    /// binary, otherwise nothing.
    #[inline]
    pub(crate) fn callable_by(&self, is_alike: bool) -> Callable<'_> {
        Callable { trampolines: if is_alike { &self.trampolines } else { &[] } }
    }

    /// Returns the background function of this number.
    pub(crate) fn background(&self, number: u16) -> Option<fn(&Caller, &[u8])> {
        self.background.get(&number).copied()
    }

    /// Returns the name of a function pointer: its offset in the program's text.
    ///
    /// # Errors
    /// [`Error::ForeignFunction`].
    #[inline(always)]
    pub(crate) fn offset_of(&self, address: usize) -> Result<u32> {
        match self.image.text_offset(address) {
            Some(offset) => Ok(offset),
            None => Err(foreign(address)),
        }
    }

    /// Returns the function that begins at this offset.
    #[inline]
    pub(crate) fn function_at(&self, offset: u32) -> Option<usize> {
        self.image.function_at(offset)
    }

    /// Returns what two processes must agree on to call each other: the program, and the table.
    pub(crate) fn identity(&self) -> ([u8; 16], u64) {
        // Distances from the beginning of the text, because addresses differ from process to
        // process.
        let text = self.image.text().start;
        let mut bytes = Vec::with_capacity(self.trampolines.len() * 8);
        for trampoline in &self.trampolines {
            let distance = trampoline.map_or(0, |trampoline| (trampoline as usize).wrapping_sub(text));
            bytes.extend(distance.to_le_bytes());
        }
        let mut program = [0; 16];
        program[..8].copy_from_slice(&self.image.fingerprint().0.to_le_bytes());
        program[8..].copy_from_slice(&(self.image.text().len() as u64).to_le_bytes());
        (program, hash_bytes(0, &bytes))
    }
}

/// The functions that a sender may call.
#[derive(Clone, Copy)]
pub(crate) struct Callable<'a> {
    trampolines: &'a [Option<Trampoline>],
}

impl Callable<'_> {
    /// Returns the trampoline of this entry.
    #[inline(always)]
    pub(crate) fn trampoline(self, entry: u16) -> Option<Trampoline> {
        self.trampolines.get(entry as usize).copied().flatten()
    }

    /// The number of entries.
    pub(crate) fn len(self) -> usize {
        self.trampolines.len()
    }
}

#[cold]
#[inline(never)]
fn foreign(address: usize) -> Error {
    Error::ForeignFunction { address }
}

/// Returns the function of the entry at this address of the table, if it has this mark.
fn marked(address: usize, with: u32) -> Option<*const ()> {
    // SAFETY: the linker's symbols enclose the section, which holds whole entries only:
    // `entry_address` and `FIRST` write all of it, 8 bytes each, aligned to 4. It is read-only.
    let &Entry { distance, mark } = unsafe { &*with_exposed_provenance::<Entry>(address) };
    (mark == with).then(|| with_exposed_provenance(address.wrapping_add_signed(distance as isize)))
}

fn listed(address: usize) -> Option<Trampoline> {
    let trampoline = marked(address, LISTED)?;
    // SAFETY: an entry with this mark was emitted by `entry_address` in `number_of`, whose `sym`
    // operand is a function of this very type.
    Some(unsafe { std::mem::transmute::<*const (), Trampoline>(trampoline) })
}

fn background(address: usize) -> Option<fn(&Caller, &[u8])> {
    let function = marked(address, BACKGROUND)?;
    // SAFETY: an entry with this mark was emitted by `entry_address` in `number_of_background`,
    // whose `sym` operand is a function of this very type.
    Some(unsafe { std::mem::transmute::<*const (), fn(&Caller, &[u8])>(function) })
}

fn room(address: usize) -> Option<fn() -> RoomEntry> {
    let room = marked(address, ROOM)?;
    // SAFETY: an entry with this mark was emitted by `entry_address` in `register_room`, whose
    // `sym` operand is a function of this very type.
    Some(unsafe { std::mem::transmute::<*const (), fn() -> RoomEntry>(room) })
}

#[cfg(test)]
mod tests {
    use std::marker::PhantomData;

    use super::*;

    struct Listed<T>(PhantomData<T>);

    impl<T> Remote for Listed<T> {
        unsafe fn run(_: &Worker, _: *const u8, end: *const u8, _: u32) -> *const u8 {
            end
        }
    }

    #[test]
    fn every_type_has_a_number_of_its_own() {
        let table = FunctionTable::of_this_program().unwrap();
        let numbers =
            [table.entries.number_of::<Listed<u8>>().unwrap(), table.entries.number_of::<Listed<u16>>().unwrap()];
        assert_ne!(numbers[0], numbers[1]);
        assert!(numbers.iter().all(|number| table.callable_by(false).trampoline(*number).is_none()));
        assert!(numbers.iter().all(|number| table.callable_by(true).trampoline(*number).is_some()));
        assert!(table.callable_by(true).trampoline(table.trampolines.len() as u16).is_none());
    }

    /// A library has a table of its own, at another place.
    #[test]
    fn an_entry_of_another_table_is_foreign() {
        let own = FunctionTable::of_this_program().unwrap().entries;
        let bytes = own.count * size_of::<Entry>();
        let address = own.start + own.number_of::<Listed<u8>>().unwrap() as usize * size_of::<Entry>();
        for start in [0, own.start.wrapping_sub(bytes), address + size_of::<Entry>(), own.start + bytes, usize::MAX - 7]
        {
            let other = Entries { start, ..own };
            let number = other.number_of::<Listed<u8>>();
            assert!(matches!(number, Err(Error::ForeignFunction { address: at }) if at == address), "{number:?}");
        }
    }

    #[test]
    fn a_pointer_outside_of_the_text_is_foreign() {
        let table = FunctionTable::of_this_program().unwrap();
        let own: fn() -> Result<FunctionTable> = FunctionTable::of_this_program;
        let offset = table.offset_of(own as usize).unwrap();
        assert_eq!(table.function_at(offset), Some(own as usize));
        assert_eq!(table.function_at(offset + 1), None);
        let local = 0_u8;
        for address in [0, 1, usize::MAX, &raw const local as usize] {
            assert!(matches!(table.offset_of(address), Err(Error::ForeignFunction { .. })));
        }
    }
}
