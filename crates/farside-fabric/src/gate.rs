//! Who may go in, and whether all have come out.

use std::sync::atomic::{AtomicUsize, Ordering};

const CLOSED: usize = 1;
const ONE: usize = 2;

/// Lets accesses to a region in until it is closed. Whoever closes it finds out when the last one has come out.
///
/// The lowest bit says that it is closed, the others count who is inside. Written by everyone who accesses the region and by
/// who takes it back. That it [is empty](Self::is_empty) means: no access is under way, and none will be.
#[derive(Debug, Default)]
pub(crate) struct Gate(AtomicUsize);

/// An access that was let in.
#[derive(Debug)]
pub(crate) struct Pass<'g>(&'g Gate);

impl Gate {
    /// Goes in, unless it is closed.
    #[inline]
    pub(crate) fn enter(&self) -> Option<Pass<'_>> {
        // One that finds it closed counts for a moment, and so `is_empty` may say no once too often. That does no harm.
        let pass = self.0.fetch_add(ONE, Ordering::Acquire) & CLOSED == 0;
        let inside = Pass(self);
        pass.then_some(inside)
    }

    /// Lets nobody in any more.
    pub(crate) fn close(&self) {
        self.0.fetch_or(CLOSED, Ordering::AcqRel);
    }

    /// It is closed, and everybody has come out. What they did is visible to who sees this (acquire, with the release in
    /// the drop of [`Pass`]).
    pub(crate) fn is_empty(&self) -> bool {
        self.0.load(Ordering::Acquire) == CLOSED
    }
}

impl Pass<'_> {
    /// Comes out. Says whether that was the last one in a closed gate, of which somebody may want to hear.
    #[inline]
    pub(crate) fn leave(self) -> bool {
        let gate = self.0;
        drop(self);
        gate.is_empty()
    }
}

impl Drop for Pass<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.0.fetch_sub(ONE, Ordering::Release);
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
    fn nobody_is_inside_of_an_empty_gate() {
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
