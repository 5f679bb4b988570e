//! A key-value store behind remote procedure calls, with values of any size.
//!
//! | to | use |
//! |---|---|
//! | keep keys and values | [`Store`] |
//! | serve them to other programs | [`KvServer`] with a [`Server`](farside_rpc::Server) |
//! | use the store of another program | [`Client`] |
//! | have many calls under way | [`KvClient`], by [`Client::calls`] |
//!
//! The command `farside kv` serves a store and uses one.
//!
//! # Rooms
//!
//! From the bottom up.
//!
//! | room | contents |
//! |---|---|
//! | `error`, `service` | errors; the calls and their types |
//! | `index`, `group` | keys and small values in a database; writers that share transactions |
//! | `values`, `open`, `uploads` | long values: files; those that are being read, or put in parts |
//! | `store`, `handlers` | [`Store`], and the store as a service |
//! | `client` | [`Client`] |

#![forbid(unsafe_code)]

mod client;
mod error;
mod group;
mod handlers;
mod index;
#[cfg(test)]
mod kills;
/// Without tests, no process is killed.
#[cfg(not(test))]
mod kills {
    #[inline(always)]
    pub(crate) fn point() {}
}
mod open;
mod service;
mod store;
mod uploads;
mod values;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{io, thread};

pub use client::Client;
pub use error::{ClientError, KvError, OpenError};
pub use service::{
    Entry, KEY_BYTES_MAX, Kv, KvClient, KvServer, PAGE_ENTRIES_MAX, PIECE_BYTES, Page, Part, SMALL_BYTES_MAX, Stat,
};
pub use store::Store;

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a thread that looks at `of`, again and again after the pause that `look` returns. It ends
/// when that is none, or `of` is gone.
fn watch<T: Send + Sync + 'static>(of: &Arc<T>, look: fn(&T) -> Option<Duration>) -> io::Result<()> {
    let of = Arc::downgrade(of);
    let watch = move || {
        while let Some(pause) = of.upgrade().and_then(|of| look(&of)) {
            thread::sleep(pause);
        }
    };
    thread::Builder::new().name("farside kv".into()).spawn(watch).map(drop)
}
