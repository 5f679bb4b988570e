//! Random histories of operations with orders, checked against the rules of `docs/memory-model.md`
//! §9.
//!
//! Every write writes a unique value, and every read stores its value in a place of its own. So the
//! test knows in the end what each read returned. An operation must find the last writes among
//! those that it is ordered after, and no write that is ordered after it. The checker is checked,
//! too: it must find the violations when some orders are kept from the library.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};

use farside::prelude::*;
use farside::{
    AtomicChange, GlobalAddress, GlobalPtr, Handle, Incoming, Order, Result, Signal, SimOptions, Simulation,
};
use farside_testbed::scaled;

/// Words of each process that are written and read many times.
const CELLS: u32 = 2;
/// Operations of a history.
const LENGTH: usize = 60;
/// Words of a worker in each process: constants as sources of copies, cells, and a log as target of
/// copies.
const PART_WORDS: u32 = CELLS + 2 * LENGTH as u32;
const _: () = assert!(3 * PART_WORDS * 8 <= 4096, "the parts of three workers fit into the starter memory");

/// Orders that are kept from the library, or a fault of the fabric below it. The checker must find
/// the violations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sabotage {
    Nothing,
    /// All operations start at once.
    Orders,
    /// Operations after a handle start at once.
    Handles,
    Fences,
    /// Completions are not waited for.
    Completion,
    /// Puts are reported as complete before they take effect.
    Fabric,
}

/// A stream of pseudorandom numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % u64::from(bound)) as u32
    }
}

/// A word: its process and its cell.
type Cell = (u32, u32);

#[derive(Debug)]
enum Kind {
    Write {
        cell: Cell,
    },
    Read {
        cell: Cell,
    },
    /// A read and a write in one step.
    Swap {
        cell: Cell,
    },
}

/// An operation as the checker sees it. It writes its index in the history plus one.
#[derive(Debug)]
struct Operation {
    kind: Kind,
    /// The operations that it is ordered after.
    after: BTreeSet<usize>,
    /// The value that it found.
    found: Option<u64>,
}

impl Operation {
    fn cell(&self) -> Cell {
        let (Kind::Write { cell } | Kind::Read { cell } | Kind::Swap { cell }) = self.kind;
        cell
    }

    fn writes(&self) -> bool {
        !matches!(self.kind, Kind::Read { .. })
    }
}

/// Returns an error if a history breaks the rules.
fn check(history: &[Operation], last: impl Fn(Cell) -> u64) -> std::result::Result<(), String> {
    // All operations before each one, directly or through others.
    let mut before: Vec<BTreeSet<usize>> = Vec::new();
    for operation in history {
        let all =
            operation.after.iter().flat_map(|earlier| before[*earlier].iter().copied().chain([*earlier])).collect();
        before.push(all);
    }
    let writers =
        |cell: Cell| (0..history.len()).filter(move |at| history[*at].writes() && history[*at].cell() == cell);
    let may_find = |cell: Cell, found: u64, reader: Option<usize>| {
        let comes_before = |at: usize| reader.is_none_or(|reader| before[reader].contains(&at));
        let writer = match usize::try_from(found).ok().and_then(|found| found.checked_sub(1)) {
            None => None,
            Some(writer) if writers(cell).any(|at| at == writer) => Some(writer),
            Some(writer) => return Err(format!("{writer} never wrote to {cell:?}")),
        };
        if let (Some(writer), Some(reader)) = (writer, reader)
            && (writer == reader || before[writer].contains(&reader))
        {
            return Err(format!("{reader} found what {writer} wrote, which is ordered after it"));
        }
        let newer = writers(cell).find(|at| {
            comes_before(*at) && Some(*at) != reader && writer.is_none_or(|writer| before[*at].contains(&writer))
        });
        match newer {
            Some(newer) => Err(format!("{reader:?} found {writer:?} in {cell:?}, and comes after {newer}")),
            None => Ok(()),
        }
    };
    for (at, operation) in history.iter().enumerate() {
        if let Some(found) = operation.found {
            may_find(operation.cell(), found, Some(at))?;
        }
    }
    let cells: BTreeSet<Cell> = history.iter().map(Operation::cell).collect();
    cells.into_iter().try_for_each(|cell| may_find(cell, last(cell), None))
}

/// The words of a worker.
struct Words<'w>(&'w Worker);

impl Words<'_> {
    fn word(&self, process: u32, index: u32) -> GlobalPtr<u64> {
        let part = self.0.thread_index() as u32 + self.0.process().number() * self.0.threads_per_process();
        GlobalAddress::starter(ProcessId::new(process), (part * PART_WORDS + index) * 8).cast()
    }

    fn cell(&self, (process, index): Cell) -> GlobalPtr<u64> {
        self.word(process, index)
    }

    /// Returns a word that holds the value of this operation.
    fn constant(&self, process: u32, at: usize) -> GlobalPtr<u64> {
        self.word(process, CELLS + at as u32)
    }

    /// Returns a word that only this operation writes.
    fn log(&self, process: u32, at: usize) -> GlobalPtr<u64> {
        self.word(process, CELLS + (LENGTH + at) as u32)
    }
}

/// The place where an operation leaves the value that it found.
enum Finding {
    Nothing,
    At(GlobalPtr<u64>),
    Word(Incoming<u64>),
    Buffer(Incoming<Vec<u8>>),
}

/// Makes a history, runs it and checks it.
fn run(me: &Worker, seed: u64, sabotage: Sabotage) -> Result<std::result::Result<(), String>> {
    let words = Words(me);
    let processes = me.process_count();
    for process in 0..processes {
        for cell in 0..CELLS {
            words.cell((process, cell)).put(me, 0)?;
        }
        for at in 0..LENGTH {
            words.constant(process, at).put(me, at as u64 + 1)?;
        }
    }
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(me.id().number()));
    let mut history: Vec<Operation> = Vec::new();
    let mut handles: Vec<Handle> = Vec::new();
    let mut findings = Vec::new();
    // The operations before all later ones, and those before later operations on a process.
    let mut completed = BTreeSet::new();
    let mut fenced: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); processes as usize];
    let mut touched: Vec<Vec<u32>> = Vec::new();
    while history.len() < LENGTH {
        let at = history.len();
        let touching = |process: u32, touched: &[Vec<u32>]| -> BTreeSet<usize> {
            (0..touched.len()).filter(|at| touched[*at].contains(&process)).collect()
        };
        match random.below(16) {
            0 if at > 0 => {
                let up_to = random.below(at as u32) as usize;
                if sabotage != Sabotage::Completion {
                    me.complete(handles[up_to])?;
                }
                completed.extend(0..=up_to);
            }
            1 => {
                let process = random.below(processes + 1);
                if sabotage != Sabotage::Fences {
                    if process < processes { me.fence_peer(ProcessId::new(process)) } else { me.fence_all() }
                }
                let peers = if process < processes { process..process + 1 } else { 0..processes };
                for peer in peers {
                    fenced[peer as usize].extend(touching(peer, &touched));
                }
            }
            2 if at > 0 => {
                let process = random.below(processes);
                if sabotage != Sabotage::Completion {
                    me.flush_peer(ProcessId::new(process))?;
                }
                completed.extend(touching(process, &touched));
            }
            _ => {}
        }
        let (mut order, mut after) = match random.below(8) {
            0 | 1 if at > 0 => {
                let earlier = at - 1 - random.below(at.min(6) as u32) as usize;
                (Order::After(handles[earlier]), [earlier].into())
            }
            2 => (Order::All, (0..at).collect()),
            3 | 4 if at > 0 => (Order::Continuing, [at - 1].into()),
            _ => (Order::None, BTreeSet::new()),
        };
        match (sabotage, order) {
            (Sabotage::Orders, _) | (Sabotage::Handles, Order::After(_)) => order = Order::None,
            _ => {}
        }
        let cell = (random.below(processes), random.below(CELLS));
        let other = random.below(processes);
        let value = at as u64 + 1;
        let word = words.cell(cell);
        let (handle, kind, finding, reaches) = match random.below(9) {
            0 => {
                let handle = me.start_put(word.address(), &value.to_le_bytes(), order)?;
                (handle, Kind::Write { cell }, Finding::Nothing, vec![cell.0])
            }
            1 => {
                let put = me.start_put_owned(word.address(), value.to_le_bytes().into(), order)?;
                (put.handle(), Kind::Write { cell }, Finding::Nothing, vec![cell.0])
            }
            2 | 3 => {
                let handle = me.copy(word.address(), words.constant(other, at).address(), 8, order)?;
                (handle, Kind::Write { cell }, Finding::Nothing, vec![cell.0, other])
            }
            4 => {
                let log = words.log(other, at);
                let handle = me.copy(log.address(), word.address(), 8, order)?;
                (handle, Kind::Read { cell }, Finding::At(log), vec![cell.0, other])
            }
            5 => {
                let got = me.start_get(word.address(), vec![0; 8], order)?;
                (got.handle(), Kind::Read { cell }, Finding::Buffer(got), vec![cell.0])
            }
            6 | 7 => {
                // Either the data or the signal is the cell.
                let (log, is_signal) = (words.log(other, at), random.below(2) == 1);
                let (data, signal) = if is_signal { (log, word) } else { (word, log) };
                let bytes = value.to_le_bytes().to_vec();
                let sent = me.start_put_signal(data.address(), bytes, signal, Signal::Set(value), order)?;
                (sent.handle(), Kind::Write { cell }, Finding::Nothing, vec![cell.0, other])
            }
            _ => {
                let swapped = me.start_change(word, AtomicChange::Swap(value), order)?;
                (swapped.handle(), Kind::Swap { cell }, Finding::Word(swapped), vec![cell.0])
            }
        };
        after.extend(&completed);
        after.extend(reaches.iter().flat_map(|process| &fenced[*process as usize]));
        history.push(Operation { kind, after, found: None });
        handles.push(handle);
        findings.push(finding);
        touched.push(reaches);
    }
    me.flush_all()?;
    for (operation, finding) in history.iter_mut().zip(findings) {
        operation.found = match finding {
            Finding::Nothing => None,
            Finding::At(word) => Some(word.get(me)?),
            Finding::Word(incoming) => Some(incoming.take(me)?),
            Finding::Buffer(incoming) => {
                Some(u64::from_le_bytes(incoming.take(me)?.try_into().expect("as long as was asked for")))
            }
        };
    }
    let mut last = std::collections::BTreeMap::new();
    for operation in &history {
        last.insert(operation.cell(), words.cell(operation.cell()).get(me)?);
    }
    me.barrier()?;
    Ok(check(&history, |cell| last[&cell]))
}

/// Returns how many of some simulated histories break the rules.
fn violations(seeds: std::ops::Range<u64>, options: SimOptions, sabotage: Sabotage) -> u32 {
    let found = AtomicU32::new(0);
    let options = SimOptions { ends_puts_early: sabotage == Sabotage::Fabric, ..options };
    for seed in seeds {
        let simulation = Simulation::new(3, 1, seed).options(options);
        let simulated = simulation.run(|me| {
            if let Err(why) = run(me, seed, sabotage)? {
                assert_ne!(sabotage, Sabotage::Nothing, "seed {seed}: {why}");
                found.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        });
        simulated.unwrap().verdict.unwrap();
    }
    found.into_inner()
}

#[test]
fn orders_are_kept_in_the_simulator() {
    let wild = SimOptions { delay_max_ns: 50_000, ..SimOptions::default() };
    let narrow =
        SimOptions { operations_max: 3, messages_max: 2, needs_target_progress: true, ..SimOptions::default() };
    for (options, first) in [(SimOptions::default(), 0), (wild, 1000), (narrow, 2000)] {
        assert_eq!(violations(first..first + scaled(3), options, Sabotage::Nothing), 0);
    }
}

#[test]
fn orders_that_are_not_kept_are_found() {
    let wild = SimOptions { delay_max_ns: 50_000, ..SimOptions::default() };
    use Sabotage::{Completion, Fabric, Fences, Handles, Orders};
    for sabotage in [Orders, Handles, Fences, Completion, Fabric] {
        let is_found = (0..12).any(|seed| violations(seed..seed + 1, wild, sabotage) > 0);
        assert!(is_found, "{sabotage:?} was not found out");
    }
}

#[farside::test(processes = 3, threads = 1)]
fn orders_are_kept_by_processes(me: &Worker) -> Result<()> {
    for seed in 0..scaled(5) {
        let outcome = run(me, seed, Sabotage::Nothing)?;
        assert_eq!(outcome, Ok(()), "seed {seed}");
    }
    Ok(())
}
