//! The side of the program that is looked at: [`Expose`], [`View`].

mod door;
mod error;
mod shared;
mod view;

use farside::Worker;

pub use self::error::{ExposeError, PublishError};
pub use self::view::{View, ViewBuilder};
use crate::element::Element;

/// What a worker can show to programs outside of the job.
///
/// The first area of a process opens the process's *door*: three threads that sleep until a
/// reader asks. Only programs of the same user on the same machine get in.
/// `FARSIDE_INSPECT=off` in the job's environment keeps all doors shut; the calls of this trait
/// then succeed and cost the same.
pub trait Expose {
    /// Begins a view: memory of any kind that the program publishes once a step.
    ///
    /// ```no_run
    /// use farside::prelude::*;
    /// use farside_inspect::Expose;
    ///
    /// # fn example(me: &Worker) -> farside::Result<()> {
    /// let rows = me.share(0..512);
    /// let mut plate = vec![0.0; rows.len() * 100];
    /// let heat = me
    ///     .view::<f64>("temperature")
    ///     .shape([rows.len(), 100])
    ///     .part_of([512, 100], [rows.start, 0])
    ///     .units("K")
    ///     .open()?;
    /// for step in 0..1000 {
    ///     plate.iter_mut().for_each(|value| *value += 1.0);
    ///     heat.publish(step, &plate)?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    fn view<T: Element>(&self, name: &str) -> ViewBuilder<'_, T>;
}

impl Expose for Worker {
    fn view<T: Element>(&self, name: &str) -> ViewBuilder<'_, T> {
        ViewBuilder::new(self, name)
    }
}
