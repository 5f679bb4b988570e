//! Admission to a region, and detection of the last exit.

use std::sync::atomic::{AtomicUsize, Ordering};

const CLOSED: usize = 1;
const ONE: usize = 2;

/// Admits accesses to a region until it is closed. The closing thread can find out when the last
/// access has ended.
///
/// The lowest bit tells that the gate is closed; the others count the accesses inside. Written by
/// every thread that accesses the region and by the thread that withdraws it.
/// [Empty](Self::is_empty) means that no access is under way, and none will be.
#[derive(Debug, Default)]
pub(crate) struct Gate(AtomicUsize);

/// An admitted access.
#[derive(Debug)]
pub(crate) struct Pass<'g>(&'g Gate);

impl Gate {
    /// Enters, unless the gate is closed.
    #[inline]
    pub(crate) fn enter(&self) -> Option<Pass<'_>> {
        // This is not an addition: a thread that finds the gate closed must never be counted, not
        // even briefly. Otherwise the last thread inside might leave at that moment without
        // noticing that it is the last.
        let count = |inside: usize| (inside & CLOSED == 0).then_some(inside + ONE);
        self.0.fetch_update(Ordering::Acquire, Ordering::Relaxed, count).ok().map(|_| Pass(self))
    }

    /// Admits no further access.
    pub(crate) fn close(&self) {
        self.0.fetch_or(CLOSED, Ordering::AcqRel);
    }

    /// Returns whether the gate is closed and all accesses have left. Their effects are visible to
    /// a thread that sees this (acquire, paired with the release in the drop of [`Pass`]).
    pub(crate) fn is_empty(&self) -> bool {
        self.0.load(Ordering::Acquire) == CLOSED
    }

    /// Records one exit. Returns whether it was the last one, and the gate is closed.
    #[inline]
    fn come_out(&self) -> bool {
        self.0.fetch_sub(ONE, Ordering::Release) == CLOSED + ONE
    }
}

impl Pass<'_> {
    /// Leaves. Returns whether this was the last exit from a closed gate, which another thread may
    /// be waiting for. Exactly one of the accesses that are inside when the gate is closed gets
    /// `true`.
    #[inline]
    pub(crate) fn leave(self) -> bool {
        let gate = self.0;
        std::mem::forget(self);
        gate.come_out()
    }
}

impl Drop for Pass<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.come_out();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_gate_is_empty_when_the_last_has_left() {
        let gate = Gate::default();
        let (first, second) = (gate.enter().unwrap(), gate.enter().unwrap());
        assert!(!first.leave() && !gate.is_empty(), "it is open");
        gate.close();
        assert!(gate.enter().is_none() && !gate.is_empty());
        assert!(second.leave() && gate.is_empty());
        gate.close();
        assert!(gate.enter().is_none() && gate.is_empty(), "it stays closed");
    }

    #[test]
    fn the_last_to_leave_knows_it_despite_new_entries() {
        use std::sync::atomic::AtomicBool;
        for _ in 0..200 {
            let (gate, is_over) = (Gate::default(), AtomicBool::new(false));
            let pass = gate.enter().unwrap();
            gate.close();
            std::thread::scope(|scope| {
                let refused = scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        assert!(gate.enter().is_none());
                    }
                });
                std::thread::yield_now();
                let is_last = pass.leave();
                is_over.store(true, Ordering::Relaxed);
                refused.join().unwrap();
                assert!(is_last, "no other access was inside");
            });
        }
    }

    #[test]
    fn an_empty_gate_is_unoccupied() {
        use std::sync::atomic::AtomicUsize;
        let (gate, inside) = (Gate::default(), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while let Some(pass) = gate.enter() {
                        inside.fetch_add(1, Ordering::SeqCst);
                        std::thread::yield_now();
                        inside.fetch_sub(1, Ordering::SeqCst);
                        drop(pass);
                    }
                });
            }
            (0..1000).for_each(|_| std::thread::yield_now());
            gate.close();
            for _ in 0..1000 {
                if gate.is_empty() {
                    assert_eq!(inside.load(Ordering::SeqCst), 0);
                }
                std::thread::yield_now();
            }
        });
        assert!(gate.is_empty());
    }
}
