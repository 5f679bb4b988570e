//! [`Held`]: how many bytes a server holds for calls.
//!
//! | bytes | from | until |
//! |---|---|---|
//! | arguments | the call was accepted; long ones when the handler's thread fetches them | the call has ended |
//! | a long result, and memory that a result owns | the handler has returned | the client has released it |
//!
//! A call is refused while there is no room for its arguments. A result is never refused, because
//! its handler has run. So results may exceed a limit, by one result for each thread of the pool.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::answer::Refused;

/// The bytes that are held for one connection, or for all of a server, and their limit.
#[derive(Debug)]
pub(super) struct Held {
    /// Threads that accept and end calls write it. Nothing else depends on it.
    bytes: AtomicU64,
    max: u64,
    /// Whose they are, in a refusal.
    what: &'static str,
}

impl Held {
    pub(super) fn of_server(max: u64) -> Self {
        Self { bytes: AtomicU64::new(0), max, what: "bytes of calls" }
    }

    pub(super) fn of_connection(max: u64) -> Self {
        Self { bytes: AtomicU64::new(0), max, what: "bytes of calls of one connection" }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Refuses while nothing more may be held.
    #[inline]
    fn check(&self, further: u64) -> Result<(), Refused> {
        let held = self.bytes();
        match held.checked_add(further) {
            Some(sum) if sum <= self.max && held < self.max => Ok(()),
            _ => Err(Refused::Busy { limit: self.max, what: self.what.into() }),
        }
    }
}

/// The bytes of a connection, within those of its server.
#[derive(Debug)]
pub(super) struct Holdings {
    pub(super) connection: Held,
    pub(super) server: Arc<Held>,
}

impl Holdings {
    /// Refuses a call while no further `bytes` may be held.
    #[inline]
    pub(super) fn check(&self, bytes: u64) -> Result<(), Refused> {
        self.connection.check(bytes)?;
        self.server.check(bytes)
    }

    /// Holds bytes of arguments, if there is room.
    pub(super) fn hold(self: &Arc<Self>, bytes: u64) -> Result<Charge, Refused> {
        let hold = self.hold_result(bytes);
        // Two threads that ask at once may both be refused, and never both be let in.
        let own = |held: &Held| held.bytes() > held.max;
        let full = [&self.connection, &*self.server].into_iter().find(|held| own(held));
        match full {
            None => Ok(hold),
            Some(held) => Err(Refused::Busy { limit: held.max, what: held.what.into() }),
        }
    }

    /// Holds bytes of a result, in any case.
    pub(super) fn hold_result(self: &Arc<Self>, bytes: u64) -> Charge {
        for held in [&self.connection, &*self.server] {
            held.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        Charge { holdings: self.clone(), bytes }
    }
}

/// Bytes that are held until this is dropped.
#[derive(Debug)]
pub(super) struct Charge {
    holdings: Arc<Holdings>,
    bytes: u64,
}

impl Drop for Charge {
    fn drop(&mut self) {
        for held in [&self.holdings.connection, &*self.holdings.server] {
            held.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_comes_back() {
        let server = Arc::new(Held::of_server(150));
        let connection = || Arc::new(Holdings { connection: Held::of_connection(100), server: server.clone() });
        let (first, second) = (connection(), connection());
        let whole = first.hold(100).unwrap();
        let busy = |limit, what: &str| Some(Refused::Busy { limit, what: what.into() });
        assert_eq!(first.hold(1).err(), busy(100, "bytes of calls of one connection"));
        assert_eq!(second.hold(51).err(), busy(150, "bytes of calls"));
        let half = second.hold(50).unwrap();
        // Both are full.
        assert_eq!(second.check(0).err(), busy(150, "bytes of calls"));
        let result = second.hold_result(1000);
        assert_eq!((second.connection.bytes(), server.bytes()), (1050, 1150));
        drop((whole, half, result));
        assert_eq!((first.check(100), second.check(100), server.bytes()), (Ok(()), Ok(()), 0));
        assert!(first.check(u64::MAX).is_err());
    }
}
