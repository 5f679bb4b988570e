//! [`Areas`]: what the workers of a process show.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use farside::LocalBytes;

use super::error::ExposeError;
use super::locked::LockedMemory;
use super::shared::Shared;
use super::slots::Budget;
use crate::protocol::{Part, Refused};
use crate::sync::lock;

/// The number of areas of a process.
const AREAS_MAX: usize = 16_384;

/// The areas of a process, by name and worker.
#[derive(Debug, Default)]
pub(super) struct Areas {
    all: Mutex<BTreeMap<(String, u32), Arc<Area>>>,
    /// How often memory was shown.
    memories: AtomicU64,
    budget: Arc<Budget>,
}

/// An area that a worker shows under a name.
#[derive(Debug)]
pub(super) struct Area {
    /// The description. Its `step` is not kept up to date.
    part: Mutex<Part>,
    /// The workers that show it. There may be several if the memory is that of the process.
    shown_by: Mutex<BTreeSet<u32>>,
    pub(super) source: Source,
}

/// Where the elements are.
#[derive(Debug)]
pub(super) enum Source {
    View(Arc<Shared>),
    Memory(Arc<LockedMemory>),
    /// A named value: the bits of a number, or `None` for a function of the worker.
    Named(Option<Arc<AtomicU64>>),
}

impl Area {
    pub(super) fn new(part: Part, source: Source) -> Arc<Self> {
        let worker = part.worker;
        Self::of(part, source, worker)
    }

    /// The same, if `worker` shows it in the name of another.
    fn of(part: Part, source: Source, worker: u32) -> Arc<Self> {
        Arc::new(Self { part: Mutex::new(part), shown_by: Mutex::new([worker].into()), source })
    }

    /// The description at this moment.
    pub(super) fn part(&self) -> Part {
        Part { step: self.step(), ..lock(&self.part).clone() }
    }

    /// The step that was published last.
    pub(super) fn step(&self) -> Option<u64> {
        if let Source::View(shared) = &self.source { shared.step() } else { None }
    }

    /// Changes what is said of it.
    pub(super) fn describe(&self, change: impl FnOnce(&mut Part)) {
        change(&mut lock(&self.part));
    }
}

impl Areas {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<(String, u32), Arc<Area>>> {
        lock(&self.all)
    }

    /// A number that no other memory of this process gets.
    pub(super) fn next_memory(&self) -> u64 {
        // Relaxed: the number publishes nothing.
        self.memories.fetch_add(1, Ordering::Relaxed)
    }

    /// The count of the mapped slots of this process.
    pub(super) fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// Adds an area.
    pub(super) fn add(&self, area: &Arc<Area>) -> Result<(), ExposeError> {
        add_to(&mut self.lock(), area)
    }

    /// Adds memory that `worker` shows, in the name of the part's worker. If another worker shows
    /// the same memory in this name, both show it.
    pub(super) fn share(
        &self,
        part: Part,
        bytes: LocalBytes,
        worker: u32,
    ) -> Result<(Arc<Area>, Arc<LockedMemory>), ExposeError> {
        let mut areas = self.lock();
        if let Some(area) = areas.get(&(part.name.clone(), part.worker))
            && let Source::Memory(memory) = &area.source
            && memory.has(&bytes)
            && area.part().element == part.element
            && lock(&area.shown_by).insert(worker)
        {
            return Ok((area.clone(), memory.clone()));
        }
        let memory = Arc::new(LockedMemory::new(bytes, self.next_memory()));
        let area = Area::of(part, Source::Memory(memory.clone()), worker);
        add_to(&mut areas, &area)?;
        Ok((area, memory))
    }

    /// Removes an area that one worker shows, and refuses those who wait for it.
    pub(super) fn remove(&self, area: &Area) {
        self.remove_of(area, area.part().worker);
    }

    /// The same, of an area that `worker` shows. It stays while other workers show it.
    pub(super) fn remove_of(&self, area: &Area, worker: u32) {
        let part = area.part();
        let mut areas = self.lock();
        let mut shown_by = lock(&area.shown_by);
        shown_by.remove(&worker);
        if !shown_by.is_empty() {
            return;
        }
        drop(shown_by);
        areas.remove(&(part.name, part.worker));
        drop(areas);
        match &area.source {
            Source::View(shared) => shared.close(),
            Source::Memory(memory) => memory.close(),
            Source::Named(_) => {}
        }
    }

    pub(super) fn find(&self, name: &str, worker: u32) -> Result<Arc<Area>, Refused> {
        let found = self.lock().get(&(name.to_owned(), worker)).cloned();
        found.ok_or_else(|| Refused::Unknown { name: name.into(), worker })
    }

    /// All areas, by name and worker.
    pub(super) fn all(&self) -> Vec<Arc<Area>> {
        self.lock().values().cloned().collect()
    }

    /// The areas of all workers that have this name.
    pub(super) fn named(&self, name: &str) -> Vec<Arc<Area>> {
        let areas = self.lock();
        let from = areas.range((name.to_owned(), 0)..=(name.to_owned(), u32::MAX));
        from.map(|(_, area)| area.clone()).collect()
    }
}

fn add_to(areas: &mut BTreeMap<(String, u32), Arc<Area>>, area: &Arc<Area>) -> Result<(), ExposeError> {
    if areas.len() >= AREAS_MAX {
        return Err(ExposeError::TooMany { max: AREAS_MAX });
    }
    let Part { name, worker, .. } = area.part();
    let key = (name, worker);
    if areas.contains_key(&key) {
        return Err(ExposeError::Taken { name: key.0, worker });
    }
    areas.insert(key, area.clone());
    Ok(())
}

/// The value of a number's bits.
pub(super) fn number(bits: &AtomicU64) -> f64 {
    // Relaxed: the number publishes nothing else.
    f64::from_bits(bits.load(Ordering::Relaxed))
}
