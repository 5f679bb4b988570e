//! Words: the cost of changing them and of finding them.

use std::hint::black_box;
use std::sync::atomic::Ordering;

use farside::global::Word;
use farside::{AccessBytes, GlobalPtr, MakeArrays, ProcessId, Worker};

use super::{METRIC, count, in_turns, time};
use crate::kit::*;

const INSTRUCTION: &str = "the processor's own";

/// Measures a fetch-and-add on a word of another process, compared with the instruction alone on an
/// equally placed line. Collective.
pub(super) fn fetch_add<W: Word + From<u8>>(me: &Worker, options: Options) -> Measured {
    let values = me.symmetric::<u64>(1)?;
    let word: GlobalPtr<W> = values.at(ProcessId::new(1))?.start().cast();
    let below = Shared::new(me, WORD_DISTANCE)?;
    let count = count(size_of::<W>(), options);
    let taken = in_turns(me, options, || {
        let ns = time(count, size_of::<W>(), || {
            black_box(black_box(word).fetch_add(me, W::from(1))?);
            Ok(())
        })?;
        let instruction = black_box(below.word(0));
        let alone = time(count, size_of::<W>(), || {
            black_box(instruction.fetch_add(black_box(1), Ordering::SeqCst));
            Ok(())
        })?;
        Ok(vec![ns, alone])
    })?;
    values.free(me)?;
    Ok(taken.rows([column(METRIC, "ns", 0).against(INSTRUCTION, 1)]))
}

/// Measures the cost of an address. Collective.
pub(super) fn translate(me: &Worker, options: Options) -> Measured {
    let values = me.symmetric::<u64>(1)?;
    let (here, there) = (values.at(me.process())?.start(), values.at(ProcessId::new(1))?.start());
    let below = Shared::new(me, WORD_DISTANCE)?;
    let count = count(size_of::<u64>(), options);
    let taken = in_turns(me, options, || {
        let load = time(count, 8, || {
            black_box(black_box(there).load(me)?);
            Ok(())
        })?;
        let instruction = black_box(below.word(0));
        let bare = time(count, 8, || {
            black_box(instruction.load(Ordering::Acquire));
            Ok(())
        })?;
        let few = count.div_ceil(100);
        let is_mapped = time(few, 8, || {
            black_box(me.is_mapped(black_box(there).address())?);
            Ok(())
        })?;
        let local = time(few, 8, || {
            black_box(me.local_address(black_box(here).address()));
            Ok(())
        })?;
        let pointer = me.local_address(here.address()).map(<*mut u8>::cast_const);
        let back = time(few, 8, || {
            black_box(pointer.and_then(|pointer| me.address_at(black_box(pointer))));
            Ok(())
        })?;
        Ok(vec![load - bare, load, is_mapped, local, back])
    })?;
    values.free(me)?;
    let names = [METRIC, "load_ns", "is_mapped_ns", "local_address_ns", "address_at_ns"];
    Ok(taken.rows((0..).zip(names).map(|(thing, name)| column(name, "ns", thing))))
}
