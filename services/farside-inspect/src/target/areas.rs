//! [`Areas`]: what the workers of a process show.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
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

/// An area that readers find under its name, until this is dropped.
#[derive(Debug)]
pub(super) struct Listed {
    area: Arc<Area>,
    areas: Arc<Areas>,
    /// The worker that shows it. The area may have the name of another.
    worker: u32,
}

impl Deref for Listed {
    type Target = Area;

    fn deref(&self) -> &Area {
        &self.area
    }
}

impl Drop for Listed {
    /// Removes the area, and refuses readers that wait for it. It stays while other workers show
    /// it.
    fn drop(&mut self) {
        let mut areas = self.areas.lock();
        let mut shown_by = lock(&self.area.shown_by);
        shown_by.remove(&self.worker);
        if !shown_by.is_empty() {
            return;
        }
        drop(shown_by);
        areas.remove(&self.area.key());
        drop(areas);
        match &self.area.source {
            Source::View(shared) => shared.close(),
            Source::Memory(memory) => memory.close(),
            Source::Named(_) => {}
        }
    }
}

impl Area {
    fn key(&self) -> (String, u32) {
        let part = lock(&self.part);
        (part.name.clone(), part.worker)
    }

    /// The description at this moment.
    pub(super) fn part(&self) -> Part {
        Part { step: self.step(), ..lock(&self.part).clone() }
    }

    /// The step that was published last.
    pub(super) fn step(&self) -> Option<u64> {
        if let Source::View(shared) = &self.source { shared.step() } else { None }
    }

    /// Changes the description, unless `change` refuses the result.
    pub(super) fn describe(
        &self,
        change: impl FnOnce(&mut Part) -> Result<(), ExposeError>,
    ) -> Result<(), ExposeError> {
        let mut part = lock(&self.part);
        let mut changed = part.clone();
        change(&mut changed)?;
        *part = changed;
        Ok(())
    }
}

impl Areas {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<(String, u32), Arc<Area>>> {
        lock(&self.all)
    }

    /// The count of the mapped slots of this process.
    pub(super) fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// Adds an area of one worker.
    pub(super) fn add(self: &Arc<Self>, part: Part, source: Source) -> Result<Listed, ExposeError> {
        let worker = part.worker;
        self.add_to(&mut self.lock(), part, source, worker)
    }

    fn add_to(
        self: &Arc<Self>,
        areas: &mut BTreeMap<(String, u32), Arc<Area>>,
        part: Part,
        source: Source,
        worker: u32,
    ) -> Result<Listed, ExposeError> {
        if areas.len() >= AREAS_MAX {
            return Err(ExposeError::TooMany { max: AREAS_MAX });
        }
        match areas.entry((part.name.clone(), part.worker)) {
            Entry::Occupied(taken) => {
                let (name, worker) = taken.key().clone();
                Err(ExposeError::Taken { name, worker })
            }
            Entry::Vacant(place) => {
                let area = Area { part: Mutex::new(part), shown_by: Mutex::new([worker].into()), source };
                let area = place.insert(Arc::new(area)).clone();
                Ok(Listed { area, areas: self.clone(), worker })
            }
        }
    }

    /// Adds memory that `worker` shows, in the name of the part's worker. If another worker shows
    /// the same memory in this name, both show it.
    pub(super) fn share(
        self: &Arc<Self>,
        part: Part,
        bytes: LocalBytes,
        worker: u32,
    ) -> Result<(Listed, Arc<LockedMemory>), ExposeError> {
        let mut areas = self.lock();
        if let Some(area) = areas.get(&(part.name.clone(), part.worker))
            && let Source::Memory(memory) = &area.source
            && memory.has(&bytes)
            && area.part().element == part.element
            && lock(&area.shown_by).insert(worker)
        {
            return Ok((Listed { area: area.clone(), areas: self.clone(), worker }, memory.clone()));
        }
        // Relaxed: the number publishes nothing. No other memory of this process gets it.
        let number = self.memories.fetch_add(1, Ordering::Relaxed);
        let memory = Arc::new(LockedMemory::new(bytes, number));
        Ok((self.add_to(&mut areas, part, Source::Memory(memory.clone()), worker)?, memory))
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

/// The value of a number's bits.
pub(super) fn number(bits: &AtomicU64) -> f64 {
    // Relaxed: the number publishes nothing else.
    f64::from_bits(bits.load(Ordering::Relaxed))
}
