//! Sections of global memory, compared with arrays that are moved value by value. The bodies run as
//! processes, over the fabric that `FARSIDE_FABRIC` names, and in the simulator.

use farside::global::GlobalError;
use std::time::Duration;

use farside::prelude::*;
use farside::{AddressFault, Error, GlobalAddress, GlobalSlice, LogGp, Result, SimOptions, Simulation};
use farside_kit::prelude::*;
use farside_kit::section::{Section, SectionError, SectionFault};
use farside_testbed::scaled;

use crate::support::{room, spread, verdict};

const STARTER_BYTES: u32 = 64 << 10;

/// A pseudorandom generator that is the same in all runs.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}

/// Returns a random section of exactly `length` values, and the places of its values.
fn section(numbers: &mut Numbers, length: usize) -> (Section, Vec<usize>) {
    let by = numbers.below(5);
    let blocks = (1..=length).filter(|block| length.is_multiple_of(*block)).collect::<Vec<_>>();
    let block = blocks[numbers.below(blocks.len())];
    let (section, places): (Section, Vec<usize>) = match numbers.below(4) {
        0 => (Section::contiguous(length), (0..length).collect()),
        1 => {
            let (count, stride) = (length / block, block + numbers.below(4));
            let places = (0..count).flat_map(|at| (0..block).map(move |inside| at * stride + inside));
            (Section::strided(count, block, stride).unwrap(), places.collect())
        }
        2 => {
            // In any order, with gaps.
            let count = length / block;
            let mut order: Vec<usize> = (0..count).collect();
            (0..count).for_each(|at| order.swap(at, numbers.below(count)));
            let stride = block + numbers.below(3);
            let places = order.iter().flat_map(|at| at * stride..at * stride + block).collect();
            (Section::indexed(order.iter().map(|at| (at * stride, block))).unwrap(), places)
        }
        _ => {
            let (rows, columns) = (length / block, block);
            let shape = [rows + numbers.below(3), columns + numbers.below(3)];
            let start = [numbers.below(shape[0] - rows + 1), numbers.below(shape[1] - columns + 1)];
            let place = move |row: usize, column: usize| (start[0] + row) * shape[1] + start[1] + column;
            let places = (0..rows).flat_map(|row| (0..columns).map(move |column| place(row, column))).collect();
            (Section::subarray(&shape, &start, &[rows, columns]).unwrap(), places)
        }
    };
    (section.shifted(by).unwrap(), places.into_iter().map(|place| place + by).collect())
}

/// The worker's own part of the next process's memory, which no other worker uses.
fn own_part<T>(me: &Worker, distance: u32) -> GlobalSlice<T> {
    let bytes = STARTER_BYTES / me.worker_count() / 128 * 128;
    let process = me.process_of(me.neighbor(distance));
    GlobalAddress::starter(process, me.id().number() * bytes).cast().slice(bytes as usize / size_of::<T>())
}

/// Puts, gets and copies random sections. Every value arrives, and all other values stay.
fn values_go_to_their_places<T>(me: &Worker, rounds: u64, value: fn(usize) -> T) -> Result<()>
where
    T: farside::bytemuck::Pod + PartialEq + std::fmt::Debug,
{
    let (there, further) = (own_part::<T>(me, 1), own_part::<T>(me, 2));
    for round in 0..rounds {
        let mut numbers = Numbers(round * 1000 + u64::from(me.id().number()));
        let length = 1 + numbers.below(60);
        let (to, to_places) = section(&mut numbers, length);
        let (from, from_places) = section(&mut numbers, length);
        let values: Vec<T> = (0..from.span()).map(value).collect();
        let room = there.part(0..to.span() + 3)?;
        let mut expected: Vec<T> = (0..room.len()).map(|at| value(1000 + at)).collect();
        room.put(me, 0, &expected)?;
        room.put_section(me, &to, &values, &from)?;
        for (to, from) in to_places.iter().zip(&from_places) {
            expected[*to] = values[*from];
        }
        assert_eq!(room.to_vec(me)?, expected, "put, round {round}: {to:?} from {from:?}");

        let (back, back_places) = section(&mut numbers, length);
        let mut got: Vec<T> = (0..back.span() + 2).map(|at| value(2000 + at)).collect();
        let mut wanted = got.clone();
        room.get_section(me, &to, &mut got, &back)?;
        for (back, to) in back_places.iter().zip(&to_places) {
            wanted[*back] = expected[*to];
        }
        assert_eq!(got, wanted, "get, round {round}: {back:?} from {to:?}");

        let apart = further.part(further.len() / 2..further.len())?;
        let (copied, copied_places) = section(&mut numbers, length);
        let mut wanted: Vec<T> = (0..copied.span()).map(|at| value(3000 + at)).collect();
        apart.put(me, 0, &wanted)?;
        apart.copy_section(me, &copied, &room, &to)?;
        for (copied, to) in copied_places.iter().zip(&to_places) {
            wanted[*copied] = expected[*to];
        }
        assert_eq!(apart.part(0..wanted.len())?.to_vec(me)?, wanted, "copy, round {round}: {copied:?} from {to:?}");

        // A copy within the same memory reads all values before it writes.
        let shared = there.part(0..(to.span() + 3).max(copied.span()))?;
        let mut wanted = shared.to_vec(me)?;
        let before = wanted.clone();
        shared.copy_section(me, &copied, &shared, &to)?;
        for (copied, to) in copied_places.iter().zip(&to_places) {
            wanted[*copied] = before[*to];
        }
        assert_eq!(shared.to_vec(me)?, wanted, "copy within, round {round}: {copied:?} from {to:?}");
    }
    me.barrier()
}

fn all_sizes(me: &Worker, rounds: u64) -> Result<()> {
    values_go_to_their_places::<u64>(me, rounds, |at| at as u64)?;
    values_go_to_their_places::<u8>(me, rounds, |at| at as u8)?;
    values_go_to_their_places::<f32>(me, rounds, |at| at as f32)?;
    values_go_to_their_places::<[u16; 5]>(me, rounds, |at| [at as u16; 5])
}

fn why<Anything: std::fmt::Debug>(result: Result<Anything>) -> SectionFault {
    match room(&result) {
        Some(SectionError(why)) => *why,
        _ => panic!("{result:?} is not about a section"),
    }
}

/// Wrong sections are refused, and nothing is written.
fn bad_sections_are_refused(me: &Worker) -> Result<()> {
    let slice: GlobalSlice<u32> = own_part::<u32>(me, 1).part(0..100)?;
    slice.put(me, 0, &[7; 100])?;
    let ten = Section::contiguous(10);
    let values = [1; 30];
    let overlapping = Section::strided(5, 2, 1)?;
    assert_eq!(why(slice.put_section(me, &overlapping, &values, &ten)), SectionFault::Overlaps);
    let twice = Section::indexed([(0, 5), (20, 2), (4, 3)])?;
    assert_eq!(why(slice.put_section(me, &twice, &values, &ten)), SectionFault::Overlaps);
    assert_eq!(why(slice.get_section(me, &ten, &mut [0; 30], &twice)), SectionFault::Overlaps);
    assert_eq!(why(slice.copy_section(me, &twice, &slice, &ten)), SectionFault::Overlaps);
    let far = Section::strided(10, 1, 11)?.shifted(1)?;
    assert_eq!(why(slice.put_section(me, &far, &values, &ten)), SectionFault::TooLong { span: 101, length: 100 });
    let short = slice.put_section(me, &ten, &values, &Section::contiguous(9));
    assert_eq!(why(short), SectionFault::LengthsDiffer { from: 9, to: 10 });
    let outside = slice.put_section(me, &ten, &values, &ten.clone().shifted(21)?);
    assert_eq!(why(outside), SectionFault::TooLong { span: 31, length: 30 });
    // A slice may claim to be longer than its memory.
    let end = GlobalAddress::starter(me.process_of(me.neighbor(1)), STARTER_BYTES - 40);
    let beyond: GlobalSlice<u32> = end.cast().slice(usize::MAX);
    let long = Section::strided(10, 1, 2)?;
    let result = beyond.put_section(me, &long, &values, &ten);
    assert!(
        matches!(room(&result), Some(GlobalError::Address { why: AddressFault::OutOfRange { .. }, .. })),
        "{result:?}"
    );
    let misaligned: GlobalSlice<u32> = end.checked_add(2).unwrap().cast().slice(8);
    let result = misaligned.put_section(me, &Section::contiguous(1), &values, &Section::contiguous(1));
    assert!(
        matches!(room(&result), Some(GlobalError::Address { why: AddressFault::Misaligned { .. }, .. })),
        "{result:?}"
    );
    assert_eq!(slice.to_vec(me)?, [7; 100]);
    // A section that is only read may name a value twice.
    slice.put_section(me, &ten, &values, &overlapping)?;
    let nothing = Section::contiguous(0);
    slice.put_section(me, &nothing, &[], &Section::strided(0, 3, 4)?)?;
    assert_eq!(
        why(Section::subarray(&[4, 4], &[1, 2], &[3, 3])),
        SectionFault::OutsideOfArray { dimension: 1, extent: 4 }
    );
    assert_eq!(why(Section::grid(&[2; 9], &[1; 9])), SectionFault::TooManyDimensions { count: 9 });
    assert_eq!(why(Section::grid(&[2; 3], &[1; 2])), SectionFault::DimensionsDiffer { one: 3, other: 2 });
    assert_eq!(why(Section::strided(usize::MAX, 2, 2)), SectionFault::TooLarge);
    me.barrier()
}

#[test]
fn everything_by_processes() {
    let job = farside::job().processes(3).starter_bytes(STARTER_BYTES);
    verdict("sections::everything_by_processes", job, |me| {
        all_sizes(me, if me.is_mapped(GlobalAddress::starter(ProcessId::new(0), 0))? { 200 } else { 5 })?;
        bad_sections_are_refused(me)
    })
    .unwrap();
}

#[test]
fn everything_in_the_simulator() {
    for seed in 0..scaled(2) {
        let simulation = Simulation::new(3, 1, seed).starter_bytes(STARTER_BYTES);
        let simulated = simulation.run(|me| {
            all_sizes(me, 4)?;
            bad_sections_are_refused(me)
        });
        simulated.unwrap().verdict.unwrap();
    }
}

/// On a network with a delay, a thousand pieces take far less than a thousand times as long as one.
#[test]
fn many_pieces_are_under_way_at_a_time() {
    let options = SimOptions { network: LogGp::FDR, delay_max_ns: 0, ..SimOptions::default() };
    let simulation = Simulation::new(2, 1, 1).starter_bytes(STARTER_BYTES).options(options);
    let simulated = simulation.run(|me| {
        if me.id().number() == 0 {
            let slice: GlobalSlice<u64> = GlobalAddress::starter(ProcessId::new(1), 0).cast().slice(4000);
            let (every_third, together) = (Section::strided(1000, 1, 3)?, Section::contiguous(1000));
            let mut values: Vec<u64> = (0..1000).collect();
            slice.put(me, 0, &[0; 4000])?;
            let mut took = Vec::new();
            for pieces in [1, 1000] {
                let (there, here) = (Section::strided(pieces, 1, 3)?, Section::contiguous(pieces));
                for get in [false, true] {
                    let before = me.now();
                    match get {
                        false => slice.put_section(me, &there, &values, &here)?,
                        true => slice.get_section(me, &there, &mut values, &here)?,
                    }
                    took.push(me.now() - before);
                }
            }
            assert_eq!(values, (0..1000).collect::<Vec<_>>());
            for (one, thousand) in [(took[0], took[2]), (took[1], took[3])] {
                assert!(thousand < one * 250, "{one:?} for one, {thousand:?} for a thousand");
            }
            let before = me.now();
            slice.part(3000..4000)?.copy_section(me, &together, &slice, &every_third)?;
            assert!(me.now() - before < (took[2] + took[3]) * 2);
            assert_eq!(slice.part(3000..4000)?.to_vec(me)?, values);
        }
        me.barrier()
    });
    simulated.unwrap().verdict.unwrap();
}

/// A worker that moves pieces to or from a process that dies gets an error at once.
#[test]
fn the_owner_may_die_meanwhile() {
    for seed in spread(8) {
        let dying = ProcessId::new(1);
        let simulation = Simulation::new(2, 1, seed)
            .starter_bytes(STARTER_BYTES)
            .kill(dying, Duration::from_micros(400 + 50 * seed));
        let simulated = simulation.run(|me| {
            if me.process() == dying {
                return me.wait_while_serving(|| false);
            }
            let slice: GlobalSlice<u64> = GlobalAddress::starter(dying, 0).cast().slice(8000);
            let (there, here) = (Section::strided(1000, 1, 3)?, Section::contiguous(1000));
            let mut values = vec![1; 1000];
            let before = me.now();
            let lost = loop {
                let moved = slice
                    .put_section(me, &there, &values, &here)
                    .and_then(|()| slice.get_section(me, &there, &mut values, &here));
                if let Err(lost) = moved {
                    break lost;
                }
            };
            assert!(matches!(lost, Error::PeerLost { process, .. } if process == dying), "{lost:?}");
            assert!(me.now() - before < Duration::from_secs(1));
            Ok(())
        });
        assert!(simulated.unwrap().verdict.is_err());
    }
}
