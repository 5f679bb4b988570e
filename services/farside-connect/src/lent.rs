//! [`Scope`]: where a program lends memory to its calls.

use std::marker::PhantomData;
use std::sync::{Arc, Mutex};

use farside_sys::process::Origin;

use crate::area::Area;
use crate::lock::lock;

/// Where memory can be lent to calls: see [`scope`].
#[derive(Debug)]
pub struct Scope<'scope, 'env: 'scope> {
    lent: &'scope Lent,
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

/// Lends memory to calls for as long as `run` runs. When it returns, no handler and no thread
/// accesses the memory any more, whatever has become of the calls: a call that is still under way
/// finds the memory [gone](crate::TransferError::Gone).
///
/// ```
/// # extern crate farside_connect as farside_rpc;
/// use farside_rpc::bulk;
///
/// let mut room = [0; 3];
/// bulk::scope(|scope| {
///     let memory = scope.lend_mut(&mut room);
///     memory.push(0, &[1, 2, 3])
/// })?;
/// assert_eq!(room, [1, 2, 3]);
/// # Ok::<(), farside_rpc::TransferError>(())
/// ```
pub fn scope<'env, T>(run: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T) -> T {
    // The memory comes back when this is dropped, also if `run` panics.
    let lent = Lent(Mutex::default(), Origin::here());
    let scope = Scope { lent: &lent, scope: PhantomData, env: PhantomData };
    run(&scope)
}

impl<'scope> Scope<'scope, '_> {
    /// Memory that a peer may read.
    pub(crate) fn area(&'scope self, slices: &[&'scope [u8]]) -> Arc<Area> {
        // SAFETY: the caller's function works for every `'scope` within `'env`, also for one that
        // lasts until `scope` returns. So the slices stay borrowed until then. The area is revoked
        // before: `Lent` does so when it is dropped, in `scope`, which owns it.
        self.keep(unsafe { Area::lent(slices) })
    }

    /// Memory that a peer may write.
    pub(crate) fn area_mut(&'scope self, slices: &mut [&'scope mut [u8]]) -> Arc<Area> {
        // SAFETY: as in `area`. The borrow is mutable for `'scope`, so nothing else uses the
        // memory.
        self.keep(unsafe { Area::lent_mut(slices) })
    }

    fn keep(&self, area: Area) -> Arc<Area> {
        let area = Arc::new(area);
        lock(&self.lent.0).push(area.clone());
        area
    }
}

/// The memory that was lent in a scope. Dropping it takes the memory back.
#[derive(Debug)]
struct Lent(Mutex<Vec<Arc<Area>>>, Origin);

impl Drop for Lent {
    fn drop(&mut self) {
        if !self.1.is_here() {
            // A forked child has memory of its own, and no thread that accesses it.
            return;
        }
        for area in lock(&self.0).drain(..) {
            area.revoke();
        }
    }
}
