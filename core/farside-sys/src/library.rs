//! Shared libraries opened at run time.
//!
//! Farside does not link optional libraries (libfabric, PMIx). A program built with Farside
//! therefore starts on a machine without them. An attempt to use a missing library returns an error
//! that names it.

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

/// A shared library, open until the process ends.
///
/// It is never closed. Libraries of this kind start threads and register handlers, which must not
/// lose their code. A few resident pages cost less.
#[derive(Clone, Copy, Debug)]
pub struct Library {
    handle: NonNull<c_void>,
    name: &'static CStr,
}

// SAFETY: any thread may use a handle of `dlopen`.
unsafe impl Send for Library {}
// SAFETY: any thread may use a handle of `dlopen`, also several at the same time, because `dlsym`
// locks.
unsafe impl Sync for Library {}

/// A library, or a symbol in it, is missing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct LibraryError(String);

impl Library {
    /// Opens a library by its name, with the search rules of the system's loader.
    ///
    /// # Safety
    /// Opening a library runs its initialisers, so `name` must be that of a library that is known
    /// to be harmless.
    ///
    /// # Errors
    /// [`LibraryError`] with the loader's message.
    pub unsafe fn open(name: &'static CStr) -> Result<Self, LibraryError> {
        // SAFETY: the name is a C string, and by the contract the initialisers may run. RTLD_NOW
        // reports missing symbols now, not in the middle of a later call.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        match NonNull::new(handle) {
            Some(handle) => Ok(Self { handle, name }),
            None => Err(last_error(name)),
        }
    }

    /// The address of a function or variable; with `version`, of exactly that version.
    ///
    /// # Errors
    /// [`LibraryError`] if the library has no symbol of this name and version.
    pub fn symbol(&self, name: &CStr, version: Option<&CStr>) -> Result<NonNull<c_void>, LibraryError> {
        let address = match version {
            // SAFETY: the handle is never closed; both names are C strings.
            Some(version) => unsafe { libc::dlvsym(self.handle.as_ptr(), name.as_ptr(), version.as_ptr()) },
            // SAFETY: the handle is never closed; the name is a C string.
            None => unsafe { libc::dlsym(self.handle.as_ptr(), name.as_ptr()) },
        };
        NonNull::new(address).ok_or_else(|| last_error(self.name))
    }
}

fn last_error(name: &CStr) -> LibraryError {
    // SAFETY: there are no arguments. The result is null or a C string that lives until this
    // thread's next call of the loader.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return LibraryError(format!("cannot use {}: the loader gives no reason", name.to_string_lossy()));
    }
    // SAFETY: not null, so a C string that lives until this thread's next call of the loader. It is
    // copied before that.
    LibraryError(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_found_by_name_and_version() {
        // SAFETY: the C library is already loaded.
        let library = unsafe { Library::open(c"libc.so.6") }.unwrap();
        let address = library.symbol(c"getpid", None).unwrap();
        // SAFETY: this is the signature of `getpid`.
        let getpid: extern "C" fn() -> libc::pid_t = unsafe { std::mem::transmute(address) };
        assert_eq!(getpid() as u32, std::process::id());
        library.symbol(c"getpid", Some(c"GLIBC_2.2.5")).unwrap();
    }

    #[test]
    fn a_missing_library_or_symbol_is_named() {
        // SAFETY: there is no such library.
        let missing = unsafe { Library::open(c"libfarside-does-not-exist.so.9") };
        assert!(missing.unwrap_err().to_string().contains("libfarside-does-not-exist.so.9"));
        // SAFETY: the C library is already loaded.
        let library = unsafe { Library::open(c"libc.so.6") }.unwrap();
        assert!(library.symbol(c"no_such_function", None).unwrap_err().to_string().contains("no_such_function"));
        assert!(library.symbol(c"getpid", Some(c"FARSIDE_9")).unwrap_err().to_string().contains("FARSIDE_9"));
    }
}
