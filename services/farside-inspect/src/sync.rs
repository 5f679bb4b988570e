//! A mutex whose holders leave nothing half done, so that a panic of one is no concern of others.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, whatever has happened to those who held it.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
