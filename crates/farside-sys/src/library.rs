//! Shared libraries opened at run time.
//!
//! What Farside can use but does not need (libfabric, PMIx) is not linked: a program built with Farside starts on a machine
//! without it, and whoever asks for it there gets an error that names it.

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

/// A shared library, open until the process ends.
///
/// It is never closed: libraries of this kind start threads and register handlers, and code that is gone from under them
/// would be worse than a few pages kept.
#[derive(Clone, Copy, Debug)]
pub struct Library {
    handle: NonNull<c_void>,
    name: &'static CStr,
}

// SAFETY: a handle of `dlopen` may be used by any thread.
unsafe impl Send for Library {}
// SAFETY: as above, and by several at once: `dlsym` locks.
unsafe impl Sync for Library {}

/// A library or something in it is missing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct LibraryError(String);

impl Library {
    /// Opens a library by its name, searched for as the system's loader does.
    ///
    /// # Safety
    /// Opening runs the library's initialisers: the name must be one of a library that is known to be harmless.
    ///
    /// # Errors
    /// [`LibraryError`] with the loader's words.
    pub unsafe fn open(name: &'static CStr) -> Result<Self, LibraryError> {
        // SAFETY: the name is a C string; by the contract the initialisers may run. RTLD_NOW so that what is missing is missed
        // now and not in the middle of a call.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        match NonNull::new(handle) {
            Some(handle) => Ok(Self { handle, name }),
            None => Err(last_error(name)),
        }
    }

    /// The address of a function or variable. With a version, exactly that one.
    ///
    /// # Errors
    /// [`LibraryError`] when the library has none of this name and version.
    pub fn symbol(&self, name: &CStr, version: Option<&CStr>) -> Result<NonNull<c_void>, LibraryError> {
        let address = match version {
            // SAFETY: the handle is open for ever; the names are C strings.
            Some(version) => unsafe { libc::dlvsym(self.handle.as_ptr(), name.as_ptr(), version.as_ptr()) },
            // SAFETY: as above.
            None => unsafe { libc::dlsym(self.handle.as_ptr(), name.as_ptr()) },
        };
        NonNull::new(address).ok_or_else(|| last_error(self.name))
    }
}

fn last_error(name: &CStr) -> LibraryError {
    // SAFETY: no arguments; the result is null or a C string that lives until this thread's next call of the loader.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return LibraryError(format!("{} cannot be opened", name.to_string_lossy()));
    }
    // SAFETY: as above, and it is copied before another call.
    LibraryError(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_found_by_name_and_version() {
        // SAFETY: the C library is loaded already.
        let library = unsafe { Library::open(c"libc.so.6") }.unwrap();
        let address = library.symbol(c"getpid", None).unwrap();
        // SAFETY: this is what `getpid` looks like.
        let getpid: extern "C" fn() -> libc::pid_t = unsafe { std::mem::transmute(address) };
        assert_eq!(getpid() as u32, std::process::id());
        library.symbol(c"getpid", Some(c"GLIBC_2.2.5")).unwrap();
    }

    #[test]
    fn what_is_missing_is_named() {
        // SAFETY: there is no such library.
        let missing = unsafe { Library::open(c"libfarside-does-not-exist.so.9") };
        assert!(missing.unwrap_err().to_string().contains("libfarside-does-not-exist.so.9"));
        // SAFETY: as above.
        let library = unsafe { Library::open(c"libc.so.6") }.unwrap();
        assert!(library.symbol(c"no_such_function", None).unwrap_err().to_string().contains("no_such_function"));
        assert!(library.symbol(c"getpid", Some(c"FARSIDE_9")).unwrap_err().to_string().contains("FARSIDE_9"));
    }
}
