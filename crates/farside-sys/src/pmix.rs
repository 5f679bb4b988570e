//! PMIx: by which processes that `mpirun` or `srun` started learn who they are, and read what the others have published.
//!
//! The library is opened at run time, and only the few functions that are needed are declared here, by hand. It is
//! left again when the [`Session`] is dropped.

mod ffi;

use std::ffi::{CStr, c_int, c_void};
use std::ptr::NonNull;
use std::time::Duration;

use self::ffi::{ByteObject, Data, Functions, Info, Proc, Value};
use crate::library::LibraryError;

/// Why PMIx could not do something.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PmixError {
    /// A function failed.
    #[error("{doing} failed: {text} ({status})")]
    Failed {
        /// What was done.
        doing: &'static str,
        /// The library's number for the reason.
        status: i32,
        /// The library's words for it.
        text: String,
    },
    /// A value is not of the type that it should be.
    #[error("what PMIx has under {key} is no {expected}")]
    Type {
        /// The value's name.
        key: String,
        /// What was expected.
        expected: &'static str,
    },
}

impl PmixError {
    /// There is no such value, or not yet.
    pub fn is_absence(&self) -> bool {
        matches!(self, Self::Failed { status: ffi::NOT_FOUND, .. })
    }
}

/// The library, opened.
#[derive(Clone, Copy, Debug)]
pub struct Pmix(Functions);

impl Pmix {
    /// Opens the library.
    ///
    /// # Errors
    /// When this machine has none, with the loader's words.
    pub fn open() -> Result<Self, LibraryError> {
        Functions::open().map(Self)
    }
}

/// This process as a client of the PMIx server on its machine, until it is dropped.
#[derive(Debug)]
pub struct Session {
    functions: Functions,
    me: Proc,
}

impl Session {
    /// Connects to the server that the environment names. Blocks until that answers.
    ///
    /// # Errors
    /// [`PmixError::Failed`] when the process was not started by a launcher that speaks PMIx.
    pub fn begin(Pmix(functions): Pmix) -> Result<Self, PmixError> {
        let mut me = Proc::new(0);
        // SAFETY: `me` can be written for the length of the call; no information is passed.
        let status = unsafe { (functions.init)(&mut me, std::ptr::null_mut(), 0) };
        functions.check("joining the PMIx server", status)?;
        Ok(Self { functions, me })
    }

    /// Which of the launcher's processes this is.
    pub fn rank(&self) -> u32 {
        self.me.rank
    }

    /// How many processes the launcher has started together.
    ///
    /// # Errors
    /// [`PmixError::Failed`], [`PmixError::Type`].
    pub fn size(&self) -> Result<u32, PmixError> {
        let value = self.get(ffi::RANK_WILDCARD, ffi::JOB_SIZE, &[])?;
        // SAFETY: the type says which member of the union holds the value.
        let number = (value.kind() == ffi::UINT32).then(|| unsafe { value.data().uint32 });
        number.ok_or_else(|| wrong_type(ffi::JOB_SIZE, "number"))
    }

    /// Lets all other processes read these bytes.
    ///
    /// # Errors
    /// [`PmixError::Failed`].
    pub fn publish(&self, key: &CStr, bytes: &[u8]) -> Result<(), PmixError> {
        let object = ByteObject { bytes: bytes.as_ptr().cast_mut().cast(), size: bytes.len() };
        let mut value = Value { kind: ffi::BYTE_OBJECT, data: Data { object } };
        // SAFETY: the key is a C string; the value and what it points to are only read, and copied before this returns.
        let status = unsafe { (self.functions.put)(ffi::GLOBAL, key.as_ptr(), &mut value) };
        self.functions.check("publishing by PMIx", status)?;
        // SAFETY: no arguments.
        let status = unsafe { (self.functions.commit)() };
        self.functions.check("publishing by PMIx", status)
    }

    /// What another process has published. Some servers wait for this time until it has, others do not wait.
    ///
    /// # Errors
    /// [`PmixError::Failed`], [`PmixError::Type`].
    pub fn fetch(&self, rank: u32, key: &CStr, time: Duration) -> Result<Vec<u8>, PmixError> {
        let seconds = c_int::try_from(time.as_secs()).unwrap_or(c_int::MAX).max(1);
        let patience = Info::integer(ffi::TIMEOUT, seconds);
        let value = self.get(rank, key, &[patience])?;
        if value.kind() != ffi::BYTE_OBJECT {
            return Err(wrong_type(key, "bytes"));
        }
        // SAFETY: the type says which member of the union holds the value.
        let ByteObject { bytes, size } = unsafe { value.data().object };
        if bytes.is_null() {
            return Ok(Vec::new());
        }
        // SAFETY: the library has given so many bytes away with the value, and nobody writes them.
        Ok(unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), size) }.to_vec())
    }

    fn get(&self, rank: u32, key: &CStr, infos: &[Info]) -> Result<OwnedValue, PmixError> {
        let proc = self.me.with_rank(rank);
        let mut value = std::ptr::null_mut();
        // SAFETY: the process, the key and as many pieces of information as are said are only read; `value` can be written.
        let status = unsafe { (self.functions.get)(&proc, key.as_ptr(), infos.as_ptr(), infos.len(), &mut value) };
        self.functions.check("reading by PMIx", status)?;
        let failed = || PmixError::Failed { doing: "reading by PMIx", status, text: "there is no value".into() };
        NonNull::new(value).map(OwnedValue).ok_or_else(failed)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // SAFETY: it is initialised, and this is the last call; no information is passed. A failure leaves nothing to be done.
        unsafe { (self.functions.finalize)(std::ptr::null(), 0) };
    }
}

/// A value that the library has given away.
#[derive(Debug)]
struct OwnedValue(NonNull<Value>);

impl OwnedValue {
    fn kind(&self) -> u16 {
        // SAFETY: a valid value until it is freed, and owned.
        unsafe { self.0.as_ref() }.kind
    }

    fn data(&self) -> &Data {
        // SAFETY: as above.
        &unsafe { self.0.as_ref() }.data
    }
}

impl Drop for OwnedValue {
    fn drop(&mut self) {
        let inner: *mut c_void = match self.kind() {
            // SAFETY: the type says which member of the union holds the value.
            ffi::BYTE_OBJECT => unsafe { self.data().object }.bytes.cast(),
            // Nothing else that is asked for here has anything inside.
            _ => std::ptr::null_mut(),
        };
        // SAFETY: null or allocated by the library with `malloc`, as its own macro for this has it, and not used any more.
        unsafe { libc::free(inner) };
        // SAFETY: as above.
        unsafe { libc::free(self.0.as_ptr().cast()) };
    }
}

fn wrong_type(key: &CStr, expected: &'static str) -> PmixError {
    PmixError::Type { key: key.to_string_lossy().into_owned(), expected }
}
