//! [`Watch`]: the frames of an area, one after the other.

use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

use farside_inspect::Element;

use super::area::{Area, At, Frame, RawFrame};
use super::error::InspectError;
use crate::selection::Selection;

/// The frames of an area, one after the other: [`Area::watch`] and [`Area::watch_raw`].
///
/// An item is a step that was not there at the last look, or an error. Steps between two looks are
/// left out. Memory as it is now has no steps: then each look is an item. An error that says that
/// the job or the area [is gone](InspectError::is_gone) is the last item. After other errors, the
/// next item is another look.
pub struct Watch<'a, F> {
    look: Box<dyn FnMut() -> Result<F, InspectError> + Send + 'a>,
    step: fn(&F) -> Option<u64>,
    period: Duration,
    /// The time of the next look.
    due: Instant,
    last: Option<u64>,
    has_ended: bool,
}

impl<'a, F> Watch<'a, F> {
    fn new(
        period: Duration,
        step: fn(&F) -> Option<u64>,
        look: impl FnMut() -> Result<F, InspectError> + Send + 'a,
    ) -> Self {
        Self { look: Box::new(look), step, period, due: Instant::now(), last: None, has_ended: false }
    }
}

impl<F> Iterator for Watch<'_, F> {
    type Item = Result<F, InspectError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.has_ended {
            thread::sleep(self.due.saturating_duration_since(Instant::now()));
            // What was missed is not made up for.
            self.due = (self.due + self.period).max(Instant::now());
            match (self.look)() {
                Ok(frame) => {
                    let step = (self.step)(&frame);
                    if step.is_none() || step != self.last {
                        self.last = step;
                        return Some(Ok(frame));
                    }
                }
                Err(error) => {
                    self.has_ended = error.is_gone();
                    return Some(Err(error));
                }
            }
        }
        None
    }
}

impl<F> std::iter::FusedIterator for Watch<'_, F> {}

impl<F> fmt::Debug for Watch<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("period", &self.period).field("last", &self.last).finish_non_exhaustive()
    }
}

impl<T> Area<T> {
    /// Reads elements of whatever type again and again: see [`watch`](Area::watch).
    pub fn watch_raw<'a>(&'a self, selection: &'a Selection, period: Duration) -> Watch<'a, RawFrame> {
        Watch::new(period, |frame| frame.step, move || self.get_raw(selection, At::Now))
    }
}

impl<T: Element> Area<T> {
    /// Reads elements again and again, at most once in a period: each new step, as a loop wants it.
    /// The program waits for none of this.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use farside_viewer::{Inspector, Selection};
    /// let heat = Inspector::connect("heat")?.open::<f64>("temperature")?;
    /// for frame in heat.watch(&"[64]".parse()?, Duration::from_millis(200)).take(10) {
    ///     let frame = frame?;
    ///     println!("step {:?}: {:?}", frame.step, frame.values);
    /// }
    /// # Ok::<(), farside_viewer::InspectError>(())
    /// ```
    pub fn watch<'a>(&'a self, selection: &'a Selection, period: Duration) -> Watch<'a, Frame<T>> {
        Watch::new(period, |frame| frame.step, move || self.get(selection, At::Now))
    }
}
