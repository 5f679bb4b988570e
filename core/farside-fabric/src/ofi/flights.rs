//! The operations in flight: for each one, the memory that the provider needs, and its purpose.
//!
//! A completion names its operation by the address of that memory. The address is only compared,
//! never dereferenced, so an invalid completion is detected.

use std::cell::UnsafeCell;
use std::ffi::c_void;

use super::ffi::Context2;

/// Memory for the contexts of a fixed number of operations.
#[derive(Debug)]
pub(super) struct Contexts {
    /// Written by the provider, through pointers only.
    contexts: Box<[UnsafeCell<Context2>]>,
}

// SAFETY: only the provider accesses the contexts, and it may do so on any thread.
unsafe impl Send for Contexts {}

impl Contexts {
    pub(super) fn new(count: usize) -> Self {
        Self { contexts: (0..count).map(|_| UnsafeCell::new(Context2([std::ptr::null_mut(); 8]))).collect() }
    }

    /// The context with which the operation at this index is posted.
    ///
    /// # Panics
    /// If there is no such index.
    pub(super) fn context(&self, index: usize) -> *mut c_void {
        self.contexts[index].get().cast()
    }

    /// The address of the first context, as a number.
    pub(super) fn start(&self) -> usize {
        self.contexts.as_ptr().addr()
    }

    /// The index of a context, if it is one of these.
    pub(super) fn index(&self, context: *mut c_void) -> Option<usize> {
        let offset = context.addr().checked_sub(self.start())?;
        let index = offset / size_of::<Context2>();
        (offset.is_multiple_of(size_of::<Context2>()) && index < self.contexts.len()).then_some(index)
    }
}

/// Operations in flight, each of a kind `F`.
#[derive(Debug)]
pub(super) struct Flights<F> {
    contexts: Contexts,
    flights: Vec<Option<F>>,
    free: Vec<usize>,
}

impl<F> Flights<F> {
    /// Creates room for `capacity` operations.
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            contexts: Contexts::new(capacity),
            flights: (0..capacity).map(|_| None).collect(),
            free: (0..capacity).rev().collect(),
        }
    }

    /// Records an operation, and returns the context to post it with. Returns the operation if
    /// there is no room.
    pub(super) fn begin(&mut self, flight: F) -> Result<*mut c_void, F> {
        let Some(index) = self.free.pop() else { return Err(flight) };
        self.flights[index] = Some(flight);
        Ok(self.contexts.context(index))
    }

    /// Ends the operation with this context, and returns it. `None` if there is none.
    pub(super) fn end(&mut self, context: *mut c_void) -> Option<F> {
        let index = self.contexts.index(context)?;
        let flight = self.flights[index].take()?;
        self.free.push(index);
        Some(flight)
    }

    /// The contexts in use, with their operations.
    pub(super) fn iter(&self) -> impl Iterator<Item = (*mut c_void, &F)> {
        let contexts = (0..self.flights.len()).map(|index| self.contexts.context(index));
        contexts.zip(&self.flights).filter_map(|(context, flight)| Some((context, flight.as_ref()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_ends_once() {
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
    fn nonsense_is_not_an_operation() {
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
