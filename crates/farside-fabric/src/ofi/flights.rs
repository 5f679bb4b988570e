//! What is under way: for each operation the room that the provider needs, and what it was for.
//!
//! A completion names its operation by the address of that room. The address is only compared, never followed, so a provider that
//! returns nonsense is found out.

use std::cell::UnsafeCell;
use std::ffi::c_void;

use super::ffi::Context2;

/// Room for so many operations.
#[derive(Debug)]
pub(super) struct Contexts {
    /// Written by the provider, through pointers only.
    contexts: Box<[UnsafeCell<Context2>]>,
}

// SAFETY: the contexts are touched by the provider alone, which is free to do so on any thread.
unsafe impl Send for Contexts {}

impl Contexts {
    pub(super) fn new(count: usize) -> Self {
        Self { contexts: (0..count).map(|_| UnsafeCell::new(Context2([std::ptr::null_mut(); 8]))).collect() }
    }

    /// What the operation in this place is posted with.
    ///
    /// # Panics
    /// When there is no such place.
    pub(super) fn context(&self, index: usize) -> *mut c_void {
        self.contexts[index].get().cast()
    }

    /// Where they begin, as a number.
    pub(super) fn start(&self) -> usize {
        self.contexts.as_ptr().addr()
    }

    /// The place of a context, if it is one of these.
    pub(super) fn index(&self, context: *mut c_void) -> Option<usize> {
        let offset = context.addr().checked_sub(self.start())?;
        let index = offset / size_of::<Context2>();
        (offset.is_multiple_of(size_of::<Context2>()) && index < self.contexts.len()).then_some(index)
    }
}

/// Operations under way, each of a kind `F`.
#[derive(Debug)]
pub(super) struct Flights<F> {
    contexts: Contexts,
    flights: Vec<Option<F>>,
    free: Vec<usize>,
}

impl<F> Flights<F> {
    /// Room for so many.
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            contexts: Contexts::new(capacity),
            flights: (0..capacity).map(|_| None).collect(),
            free: (0..capacity).rev().collect(),
        }
    }

    /// Notes an operation, and returns the context to post it with. Gives it back when there are too many.
    pub(super) fn begin(&mut self, flight: F) -> Result<*mut c_void, F> {
        let Some(index) = self.free.pop() else { return Err(flight) };
        self.flights[index] = Some(flight);
        Ok(self.contexts.context(index))
    }

    /// The operation with this context has ended. `None` when there is none.
    pub(super) fn end(&mut self, context: *mut c_void) -> Option<F> {
        let index = self.contexts.index(context)?;
        let flight = self.flights[index].take()?;
        self.free.push(index);
        Some(flight)
    }

    /// Contexts and what they are for.
    pub(super) fn iter(&self) -> impl Iterator<Item = (*mut c_void, &F)> {
        let contexts = (0..self.flights.len()).map(|index| self.contexts.context(index));
        contexts.zip(&self.flights).filter_map(|(context, flight)| Some((context, flight.as_ref()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_begins_ends_once() {
        let mut flights = Flights::new(2);
        let [one, two] = [1, 2].map(|number| flights.begin(number).unwrap());
        assert_ne!(one, two);
        assert_eq!(flights.begin(3), Err(3));
        assert_eq!(flights.iter().map(|(_, number)| *number).sum::<i32>(), 3);
        assert_eq!((flights.end(one), flights.end(one)), (Some(1), None));
        assert_eq!(flights.begin(3), Ok(one));
        assert_eq!((flights.end(two), flights.end(one)), (Some(2), Some(3)));
    }

    #[test]
    fn nonsense_is_no_operation() {
        let mut flights = Flights::new(2);
        let context = flights.begin(7).unwrap();
        for wrong in [
            std::ptr::null_mut(),
            context.wrapping_byte_add(8),
            context.wrapping_byte_add(2 * 64),
            context.wrapping_byte_sub(64),
        ] {
            assert_eq!(flights.end(wrong), None);
        }
        assert_eq!(flights.end(context), Some(7));
    }
}
