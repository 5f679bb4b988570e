//! [`Areas`]: what the workers of a process show.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

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

/// What a worker shows under a name.
#[derive(Debug)]
pub(super) struct Area {
    /// What is said of it. Its `step` is not kept up to date.
    part: Mutex<Part>,
    pub(super) source: Source,
}

/// Where the elements are.
#[derive(Debug)]
pub(super) enum Source {
    View(Arc<Shared>),
    Memory(Arc<LockedMemory>),
    /// The bits of a number: a gauge or a parameter.
    Number(Arc<AtomicU64>),
    /// An action or a probe: a function of the worker.
    Function,
}

impl Area {
    pub(super) fn new(part: Part, source: Source) -> Arc<Self> {
        Arc::new(Self { part: Mutex::new(part), source })
    }

    /// What is said of it at this moment.
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

    /// What counts the mapped slots of this process.
    pub(super) fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// Adds an area.
    pub(super) fn add(&self, area: &Arc<Area>) -> Result<(), ExposeError> {
        let mut areas = self.lock();
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

    /// Removes an area, and refuses those who wait for it.
    pub(super) fn remove(&self, area: &Area) {
        let part = area.part();
        self.lock().remove(&(part.name, part.worker));
        match &area.source {
            Source::View(shared) => shared.close(),
            Source::Memory(memory) => memory.close(),
            Source::Number(_) | Source::Function => {}
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

/// The value of a number's bits.
pub(super) fn number(bits: &AtomicU64) -> f64 {
    // Relaxed: the number publishes nothing else.
    f64::from_bits(bits.load(Ordering::Relaxed))
}
