//! Handles that are made from arbitrary bytes. Any program can make them: by a type that looks like
//! a handle, or by decoding. They reach memory of programs at most, and never the memory that the
//! library keeps for itself: rings, pipes, replies.

use farside::prelude::*;
use farside::wire::{self, Decoder, Schema};
use farside::{
    AtomicChange, Comparison, GlobalAddress, GlobalPtr, GlobalSlice, Order, RemoteKey, RemoteMemory, Result,
    ResultPlace, Signal, Written,
};
use farside_kit::heap::RemoteBlock;
use farside_kit::notifications::Notifications as _;
use farside_kit::pipe::{PipeReader, PipeWriter};
use farside_kit::prelude::*;
use farside_kit::sync::{LockManager, Token};
use proptest::prelude::*;

/// The size of the regions in which the library keeps rings and pipes.
const SLAB_BYTES: u64 = 256 << 10;
/// More slots than these tests' processes have regions.
const SLOTS: u32 = 12;
/// The slots that have addresses, and the generations of a slot that addresses tell apart.
const ADDRESSED_SLOTS: u32 = 8192;
const GENERATIONS: u32 = 16;
/// The bit of a generation that says that a region is internal.
const INTERNAL: u32 = 1 << 31;
/// The words of the messages in pipes. A forged handle may have it as its stamp.
const CANARY: u64 = 0x5afe_5afe_5afe_5afe;
const MESSAGE_BYTES: usize = 4096;
const MESSAGES: usize = 3;

/// The fields of [`RemoteMemory`].
#[derive(Clone, Copy, Debug, Wire)]
struct LookAlike {
    key: RemoteKey,
    offset: u64,
    bytes: u64,
    id: u32,
    generation: u32,
}

impl LookAlike {
    /// The same memory under the name whose stamp is this.
    fn stamped(self, stamp: u64) -> Self {
        const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
        // Each step doubles the number of right bits.
        let inverse = (0..6).fold(FACTOR, |x, _| x.wrapping_mul(2_u64.wrapping_sub(FACTOR.wrapping_mul(x))));
        let name = stamp.wrapping_mul(inverse).wrapping_sub(1);
        Self { id: name as u32, generation: (name >> 32) as u32, ..self }
    }
}

/// Returns an address in any slot of any process, which the library makes of a forged handle: a
/// test that knew the bits of an address would miss its aim once they are others.
pub(crate) fn address_in(process: ProcessId, slot: u32, generation: u32, offset: u64) -> GlobalAddress {
    let key = RemoteKey { process, slot, generation, reserved: 0, bytes: SLAB_BYTES };
    let handle = wire::encode(&LookAlike { key, offset, bytes: 64, id: 0, generation: 0 }, Vec::new());
    let handle: RemoteMemory = wire::decode(Decoder::new(&handle), 0).expect("any such bytes are a handle");
    handle.address().expect("every slot below the last, and every offset in one, has an address")
}

/// Decodes a handle from the bytes of another value.
fn forge<T: Wire>(me: &Worker, from: &impl Wire) -> Option<T> {
    wire::decode(Decoder::new(&wire::encode(from, Vec::new())).within(me), 0).ok()
}

/// Messages that lie in the pipes between two workers, in memory of both processes.
struct Canaries<'w> {
    me: &'w Worker,
    reader: PipeReader<'w>,
    writer: PipeWriter<'w>,
}

impl<'w> Canaries<'w> {
    fn new(me: &'w Worker) -> Result<Self> {
        let pipe = || me.pipe(me.neighbor(1)).width(4).message_bytes(MESSAGE_BYTES);
        let (reader, mut writer) = (pipe().reader()?, pipe().writer()?);
        for _ in 0..MESSAGES {
            writer.write(&CANARY.to_ne_bytes().repeat(MESSAGE_BYTES / 8))?;
        }
        me.barrier()?;
        Ok(Self { me, reader, writer })
    }

    /// Checks that all is as it was, and goes on.
    fn check(mut self) -> Result<()> {
        self.me.barrier()?;
        for _ in 0..MESSAGES {
            assert!(
                *self.reader.recv()? == CANARY.to_ne_bytes().repeat(MESSAGE_BYTES / 8),
                "a message was overwritten"
            );
        }
        let long = vec![CANARY; 500];
        assert_eq!(self.me.call_return(self.me.neighbor(1), long.clone(), |_, values| values)?.wait()?, long);
        self.me.barrier()?;
        drop(self.writer);
        Ok(())
    }
}

/// The attack: a handle in the slab of the other process's rings, whose stamp is a word that stands
/// there.
fn a_look_alike_does_not_open_rings_and_pipes(me: &Worker) -> Result<()> {
    let canaries = Canaries::new(me)?;
    let process = me.process_of(me.neighbor(1));
    let generations = (0..4).flat_map(|uses| [uses, uses | INTERNAL]);
    let keys = generations.flat_map(|generation| (0..SLOTS).map(move |slot| (slot, generation)));
    for (slot, generation) in keys.filter(|_| me.id().number() == 0) {
        let key = RemoteKey { process, slot, generation, reserved: 0, bytes: SLAB_BYTES };
        for offset in (64..SLAB_BYTES).step_by(MESSAGE_BYTES / 2) {
            let forged = LookAlike { key, offset, bytes: 64, id: 0, generation: 0 }.stamped(CANARY);
            let memory: RemoteMemory = forge(me, &forged).expect("any such bytes are a handle");
            let put = memory.put(me, 0, &[0xee; 64]);
            assert!(put.is_err(), "{memory:?} was written");
            assert!(memory.get(me, 0, &mut [0; 64]).is_err(), "{memory:?} was read");
        }
    }
    canaries.check()
}

/// Reads and writes at addresses in the slots of the other process, in every generation that an
/// address can have. What is written may be memory of a program.
fn no_address_leads_to_rings_and_pipes(me: &Worker) -> Result<()> {
    let canaries = Canaries::new(me)?;
    let process = me.process_of(me.neighbor(1));
    let in_use = (0..SLOTS).flat_map(|slot| (0..GENERATIONS).map(move |generation| (slot, generation)));
    for (slot, generation) in in_use.filter(|_| me.id().number() == 0) {
        for offset in (0..SLAB_BYTES).step_by(MESSAGE_BYTES / 2) {
            let address = address_in(process, slot, generation, offset);
            let read = me.get_bytes(address, &mut [0; 64]);
            // The program's part of the starter memory is its first. Reply slots lie outside.
            let is_starter = slot == 0 && generation == 0 && offset < 4096;
            assert!(slot > 0 || is_starter || read.is_err(), "{address} was read");
            let _ = me.put_bytes(address, &[0xee; 64]);
        }
    }
    // No region has these slots.
    let others = (SLOTS..ADDRESSED_SLOTS).flat_map(|slot| (0..GENERATIONS).map(move |generation| (slot, generation)));
    for (slot, generation) in others.filter(|_| me.id().number() == 0) {
        let address = address_in(process, slot, generation, 0);
        assert!(me.get_bytes(address, &mut [0; 64]).is_err(), "{address} was read");
    }
    canaries.check()
}

everywhere! {
    as_processes(processes = 2, threads = 1),
    simulated(processes = 2, threads = 1, seeds = 1);

    a_look_alike_does_not_open_rings_and_pipes
    no_address_leads_to_rings_and_pipes
}

/// A function that is registered for a handle cannot be called with a look-alike of it.
#[test]
fn a_look_alike_is_another_type() {
    fn differ<A: Wire, B: Wire>() {
        assert_ne!(Schema::of::<A>().hash(), Schema::of::<B>().hash(), "{}", std::any::type_name::<A>());
    }
    #[derive(Wire)]
    struct Bits(u64);
    differ::<RemoteMemory, LookAlike>();
    differ::<GlobalAddress, Bits>();
    differ::<ResultPlace<u64>, (RemoteMemory, u64, u64)>();
}

/// The numbers from which all handles are made.
#[derive(Clone, Copy, Debug)]
struct Forged {
    memory: LookAlike,
    address: u64,
    number: u64,
    count: u64,
}

fn any_forged() -> impl Strategy<Value = Forged> {
    let number = || prop_oneof![3 => 0..5000_u64, 1 => any::<u64>()];
    let generation = prop_oneof![4 => (0..3_u32, any::<bool>()).prop_map(|(uses, internal)| uses | u32::from(internal) << 31), 1 => any::<u32>()];
    let slot = prop_oneof![4 => 0..SLOTS, 1 => any::<u32>()];
    let bytes = prop_oneof![4 => Just(SLAB_BYTES), 2 => Just(2 << 20), 1 => any::<u64>()];
    let key = (0..3_u32, slot, generation, bytes).prop_map(|(process, slot, generation, bytes)| RemoteKey {
        process: ProcessId::new(process),
        slot,
        generation,
        reserved: 0,
        bytes,
    });
    let offset = prop_oneof![4 => (0..SLAB_BYTES / 64).prop_map(|unit| unit * 64), 1 => any::<u64>()];
    let name = prop_oneof![2 => (0..3_u32, 0..3_u32), 1 => any::<(u32, u32)>()];
    let memory = (key, offset, number(), name).prop_map(|(key, offset, bytes, (id, generation))| LookAlike {
        key,
        offset,
        bytes,
        id,
        generation,
    });
    let address = prop_oneof![
        4 => (0..3_u32, 0..SLOTS, 0..GENERATIONS, 0..SLAB_BYTES / 8).prop_map(|(process, slot, generation, word)| {
            address_in(ProcessId::new(process), slot, generation, word * 8).to_bits()
        }),
        1 => any::<u64>(),
    ];
    (memory, address, number(), number()).prop_map(|(memory, address, number, count)| Forged {
        memory,
        address,
        number,
        count,
    })
}

/// Calls every method of every handle. What each returns does not matter.
fn use_all(me: &Worker, forged: &Forged) {
    let Forged { memory, address, number, count } = *forged;
    let (other, index) = (me.neighbor(1), count as usize);
    for memory in [memory, memory.stamped(CANARY)] {
        let handle: RemoteMemory = forge(me, &memory).expect("any such bytes are a handle");
        let _ = handle.check(me);
        let _ = handle.put(me, number, &[0xee; 64]);
        let _ = handle.get(me, number, &mut [0; 64]);
        let _ = handle.atomic64(me, number & !7, AtomicChange::Add(count));
        let _ = handle.atomic32(me, number & !3, AtomicChange::Add(1));
        let _ = handle.region(me);
        let _ = handle.address().and_then(|address| me.put_bytes(address, &[0xee; 64]));
        let _ = me.release(handle);

        let place: ResultPlace<Vec<u8>> = forge(me, &(memory, number & !7, count)).expect("any such bytes are a place");
        let _ = place.poll(me);
        let _ = me.to(other).call_into((), |_, ()| vec![0xee_u8; 64], place);
        let _ = place.clear(me);
        let written: Written = forge(me, &(memory, number, count)).expect("any such bytes are a notice");
        let _ = written.to_vec(me);
        let block: RemoteBlock = forge(me, &(memory, number as u32, count, count)).expect("any such bytes are a block");
        let _ = block.address();
        let _ = block.open(me);
    }

    let address: GlobalAddress = forge(me, &address).expect("any bits are an address");
    let _ = me.put_bytes(address, &[0xee; 64]);
    let _ = me.get_bytes(address, &mut [0; 64]);
    let _ = (me.is_mapped(address), me.local_address(address));
    for (target, source) in
        [(address, GlobalAddress::starter(me.process(), 0)), (GlobalAddress::starter(me.process(), 0), address)]
    {
        let _ = me.copy(target, source, number, Order::None).and_then(|copied| me.complete(copied));
    }
    let pointer: GlobalPtr<u64> = address.cast();
    let _ = pointer.put(me, count);
    let _ = pointer.get(me);
    let _ = pointer.fetch_add(me, count);
    let _ = pointer.signal(me, Signal::Add(count));
    let _ = pointer.put_signal(me, count, pointer, Signal::Set(count));
    let _ = pointer.until(Comparison::Ne, 0).test(me);
    let _ = me.to(other).signalling(pointer, Signal::Add(count)).call((), |_, ()| ());
    let _ = pointer.add(index).and_then(|next| next.put(me, count));
    let slice: GlobalSlice<u64> = forge(me, &(address, index)).expect("any such bytes are a slice");
    let _ = slice.to_vec(me);
    let _ = slice.at(number as usize).and_then(|at| at.get(me));
    let _ = slice.put(me, number as usize, &[count; 8]);
    let _ = slice.part(0..8).and_then(|part| part.test(me));

    // Their owners check a number before it becomes a handle.
    let number = number as u32;
    assert!(forge::<Dist<u64>>(me, &number).is_none() && forge::<PerWorker<u64>>(me, &number).is_none());
    assert!(forge::<LockManager>(me, &(number, Some(count))).is_none());
    let token: Token = forge(me, &(u64::from(number), count, true)).expect("any such bytes are a token");
    assert_eq!((token.lock(), token.number(), token.is_shared()), (number.into(), count, true));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn no_handle_of_any_bytes_reaches_internal_memory(forged in prop::collection::vec(any_forged(), 20)) {
        let body = move |me: &Worker| -> Result<()> {
            let canaries = Canaries::new(me)?;
            forged.iter().for_each(|forged| use_all(me, forged));
            canaries.check()
        };
        let outcome = farside::simulate(2, 1, 1, body);
        prop_assert!(outcome.is_ok(), "{outcome:?}");
    }
}
