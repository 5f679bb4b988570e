//! PMIx, the interface through which processes started by `mpirun` or `srun` learn their ranks and
//! exchange data.
//!
//! The library is opened at run time, and the few functions in use are declared here by hand.
//! Dropping the [`Session`] disconnects from the server.

mod ffi;

use std::ffi::{CStr, c_int, c_void};
use std::ptr::NonNull;
use std::time::Duration;

use self::ffi::{ByteObject, Data, Functions, Info, Proc, Value};
use crate::library::LibraryError;

/// Why a PMIx call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PmixError {
    /// A function failed.
    #[error("{doing} failed: {text} ({status})")]
    Failed {
        /// The action that failed.
        doing: &'static str,
        /// The library's number for the reason.
        status: i32,
        /// The library's message.
        text: String,
    },
    /// A value has an unexpected type.
    #[error("the PMIx value {key} cannot be used: it is not a {expected}")]
    Type {
        /// The value's name.
        key: String,
        /// The kind of value that was expected.
        expected: &'static str,
    },
}

impl PmixError {
    /// Returns whether the value does not exist, or does not exist yet.
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
    /// [`LibraryError`] with the loader's message if this machine has no such library.
    pub fn open() -> Result<Self, LibraryError> {
        Functions::open().map(Self)
    }
}

/// This process as a client of its machine's PMIx server, until the value is dropped.
#[derive(Debug)]
pub struct Session {
    functions: Functions,
    me: Proc,
}

impl Session {
    /// Connects to the server that the environment names. Blocks until the server answers.
    ///
    /// # Errors
    /// [`PmixError::Failed`] if the process was not started by a launcher that supports PMIx.
    pub fn begin(Pmix(functions): Pmix) -> Result<Self, PmixError> {
        let mut me = Proc::new(0);
        // SAFETY: `me` is writable for the length of the call; no information is passed.
        let status = unsafe { (functions.init)(&mut me, std::ptr::null_mut(), 0) };
        functions.check("joining the PMIx server", status)?;
        Ok(Self { functions, me })
    }

    /// The rank of this process among the launcher's processes.
    pub fn rank(&self) -> u32 {
        self.me.rank
    }

    /// Number of processes that the launcher started together.
    ///
    /// # Errors
    /// [`PmixError::Failed`], [`PmixError::Type`].
    pub fn size(&self) -> Result<u32, PmixError> {
        let value = self.get(ffi::RANK_WILDCARD, ffi::JOB_SIZE, &[])?;
        // SAFETY: the type tag selects the member of the union that holds the value.
        let number = (value.kind() == ffi::UINT32).then(|| unsafe { value.data().uint32 });
        number.ok_or_else(|| wrong_type(ffi::JOB_SIZE, "32-bit number"))
    }

    /// Publishes bytes that all other processes can read.
    ///
    /// # Errors
    /// [`PmixError::Failed`].
    pub fn publish(&self, key: &CStr, bytes: &[u8]) -> Result<(), PmixError> {
        let object = ByteObject { bytes: bytes.as_ptr().cast_mut().cast(), size: bytes.len() };
        let mut value = Value { kind: ffi::BYTE_OBJECT, data: Data { object } };
        // SAFETY: the key is a C string. The value, and what it points to, is only read, and copied
        // before the call returns.
        let status = unsafe { (self.functions.put)(ffi::GLOBAL, key.as_ptr(), &mut value) };
        self.functions.check("publishing by PMIx", status)?;
        // SAFETY: the call has no arguments, and the library is initialised.
        let status = unsafe { (self.functions.commit)() };
        self.functions.check("publishing by PMIx", status)
    }

    /// Reads what another process has published. Some servers wait up to `time` for the value,
    /// others do not wait.
    ///
    /// # Errors
    /// [`PmixError::Failed`], [`PmixError::Type`].
    pub fn fetch(&self, rank: u32, key: &CStr, time: Duration) -> Result<Vec<u8>, PmixError> {
        let seconds = c_int::try_from(time.as_secs()).unwrap_or(c_int::MAX).max(1);
        let patience = Info::integer(ffi::TIMEOUT, seconds);
        let value = self.get(rank, key, &[patience])?;
        if value.kind() != ffi::BYTE_OBJECT {
            return Err(wrong_type(key, "byte string"));
        }
        // SAFETY: the type tag selects the member of the union that holds the value.
        let ByteObject { bytes, size } = unsafe { value.data().object };
        if bytes.is_null() {
            return Ok(Vec::new());
        }
        // SAFETY: the library allocated `size` bytes at `bytes` and gave them away with the value,
        // so nothing else writes them.
        Ok(unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), size) }.to_vec())
    }

    fn get(&self, rank: u32, key: &CStr, infos: &[Info]) -> Result<OwnedValue, PmixError> {
        let proc = self.me.with_rank(rank);
        let mut value = std::ptr::null_mut();
        // SAFETY: the process, the key and the `infos.len()` pieces of information are only read;
        // `value` is writable.
        let status = unsafe { (self.functions.get)(&proc, key.as_ptr(), infos.as_ptr(), infos.len(), &mut value) };
        self.functions.check("reading by PMIx", status)?;
        let failed = || PmixError::Failed { doing: "reading by PMIx", status, text: "there is no value".into() };
        NonNull::new(value).map(OwnedValue).ok_or_else(failed)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // SAFETY: the library is initialised, this is the last call, and no information is passed.
        // Nothing remains to be done after a failure.
        unsafe { (self.functions.finalize)(std::ptr::null(), 0) };
    }
}

/// A value whose ownership the library has transferred to this process.
#[derive(Debug)]
struct OwnedValue(NonNull<Value>);

impl OwnedValue {
    fn kind(&self) -> u16 {
        // SAFETY: the value is valid until it is freed in `drop`, and owned by `self`.
        unsafe { self.0.as_ref() }.kind
    }

    fn data(&self) -> &Data {
        // SAFETY: the value is valid until it is freed in `drop`, and owned by `self`.
        &unsafe { self.0.as_ref() }.data
    }
}

impl Drop for OwnedValue {
    fn drop(&mut self) {
        let inner: *mut c_void = match self.kind() {
            // SAFETY: the type tag selects the member of the union that holds the value.
            ffi::BYTE_OBJECT => unsafe { self.data().object }.bytes.cast(),
            // Values of the other requested types own no allocation.
            _ => std::ptr::null_mut(),
        };
        // SAFETY: null, or allocated by the library with `malloc`, as its own macro for freeing
        // assumes, and not used any more.
        unsafe { libc::free(inner) };
        // SAFETY: allocated by the library with `malloc`, as its own macro for freeing assumes, and
        // not used any more.
        unsafe { libc::free(self.0.as_ptr().cast()) };
    }
}

fn wrong_type(key: &CStr, expected: &'static str) -> PmixError {
    PmixError::Type { key: key.to_string_lossy().into_owned(), expected }
}
