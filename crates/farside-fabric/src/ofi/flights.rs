//! What is under way: for each operation the room that the provider needs, and what it was for.
//!
//! A completion names its operation by the address of that room. The address is only compared, never followed, so a provider that
//! returns nonsense is found out.

use std::cell::UnsafeCell;
use std::ffi::c_void;

use super::ffi::Context2;

/// Operations under way, each of a kind `F`.
#[derive(Debug)]
pub(super) struct Flights<F> {
    /// Written by the provider, through pointers only.
    contexts: Box<[UnsafeCell<Context2>]>,
    flights: Vec<Option<F>>,
    free: Vec<usize>,
}

// SAFETY: the contexts are touched by the provider alone, which is free to do so on any thread.
unsafe impl<F: Send> Send for Flights<F> {}

impl<F> Flights<F> {
    /// Room for so many.
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            contexts: (0..capacity).map(|_| UnsafeCell::new(Context2([std::ptr::null_mut(); 8]))).collect(),
            flights: (0..capacity).map(|_| None).collect(),
            free: (0..capacity).rev().collect(),
        }
    }

    /// Notes an operation, and returns the context to post it with. Gives it back when there are too many.
    pub(super) fn begin(&mut self, flight: F) -> Result<*mut c_void, F> {
        let Some(index) = self.free.pop() else { return Err(flight) };
        self.flights[index] = Some(flight);
        Ok(self.contexts[index].get().cast())
    }

    /// The operation with this context has ended. `None` when there is none.
    pub(super) fn end(&mut self, context: *mut c_void) -> Option<F> {
        let index = self.index(context)?;
        let flight = self.flights[index].take()?;
        self.free.push(index);
        Some(flight)
    }

    fn index(&self, context: *mut c_void) -> Option<usize> {
        let offset = (context as usize).checked_sub(self.contexts.as_ptr() as usize)?;
        let index = offset / size_of::<Context2>();
        (offset.is_multiple_of(size_of::<Context2>()) && index < self.contexts.len()).then_some(index)
    }

    /// Contexts and what they are for.
    pub(super) fn iter(&self) -> impl Iterator<Item = (*mut c_void, &F)> {
        let contexts = self.contexts.iter().map(|context| context.get().cast());
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
