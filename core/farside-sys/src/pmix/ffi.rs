//! The used part of `pmix.h` and `pmix_common.h`, versions 3 to 5: layouts that are the same in all
//! three.

use std::ffi::{CStr, c_char, c_int};
use std::fmt;

use super::PmixError;
use crate::library::{Library, LibraryError};

const NAMESPACE_BYTES: usize = 256;
const KEY_BYTES: usize = 512;

pub(super) const SUCCESS: c_int = 0;
pub(super) const NOT_FOUND: c_int = -46;
pub(super) const GLOBAL: u8 = 3;
pub(super) const RANK_WILDCARD: u32 = u32::MAX - 1;
pub(super) const JOB_SIZE: &CStr = c"pmix.job.size";
pub(super) const TIMEOUT: &CStr = c"pmix.timeout";
const INT: u16 = 6;
pub(super) const UINT32: u16 = 14;
pub(super) const BYTE_OBJECT: u16 = 27;

/// `pmix_proc_t`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Proc {
    namespace: [c_char; NAMESPACE_BYTES],
    pub(super) rank: u32,
}

impl Proc {
    pub(super) fn new(rank: u32) -> Self {
        Self { namespace: [0; NAMESPACE_BYTES], rank }
    }

    /// Returns the process of the same job with rank `rank`.
    pub(super) fn with_rank(&self, rank: u32) -> Self {
        Self { rank, ..*self }
    }
}

impl fmt::Debug for Proc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proc").field("rank", &self.rank).finish_non_exhaustive()
    }
}

/// `pmix_byte_object_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct ByteObject {
    pub(super) bytes: *mut c_char,
    pub(super) size: usize,
}

/// The union in `pmix_value_t`: the members used here, and one member of the size of the largest,
/// `pmix_envar_t`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) union Data {
    integer: c_int,
    pub(super) uint32: u32,
    pub(super) object: ByteObject,
    largest: [usize; 3],
}

/// `pmix_value_t`.
#[repr(C)]
pub(super) struct Value {
    pub(super) kind: u16,
    pub(super) data: Data,
}

/// `pmix_info_t`.
#[repr(C)]
pub(super) struct Info {
    key: [c_char; KEY_BYTES],
    flags: u32,
    value: Value,
}

impl Info {
    /// Builds a piece of information that holds a number.
    pub(super) fn integer(key: &CStr, number: c_int) -> Self {
        let mut data = Data { largest: [0; 3] };
        data.integer = number;
        let mut info = Self { key: [0; KEY_BYTES], flags: 0, value: Value { kind: INT, data } };
        for (place, byte) in info.key.iter_mut().zip(key.to_bytes()) {
            *place = *byte as c_char;
        }
        info
    }
}

/// The library's functions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Functions {
    pub(super) init: unsafe extern "C" fn(*mut Proc, *mut Info, usize) -> c_int,
    pub(super) put: unsafe extern "C" fn(u8, *const c_char, *mut Value) -> c_int,
    pub(super) commit: unsafe extern "C" fn() -> c_int,
    pub(super) get: unsafe extern "C" fn(*const Proc, *const c_char, *const Info, usize, *mut *mut Value) -> c_int,
    pub(super) finalize: unsafe extern "C" fn(*const Info, usize) -> c_int,
    error_string: unsafe extern "C" fn(c_int) -> *const c_char,
}

impl Functions {
    pub(super) fn open() -> Result<Self, LibraryError> {
        // SAFETY: this library's initialisers have no effect that the program could notice.
        let library = unsafe { Library::open(c"libpmix.so.2") }?;
        let symbol = |name| library.symbol(name, None).map(std::ptr::NonNull::as_ptr);
        let [init, put, commit] = [symbol(c"PMIx_Init")?, symbol(c"PMIx_Put")?, symbol(c"PMIx_Commit")?];
        let [get, finalize, error_string] =
            [symbol(c"PMIx_Get")?, symbol(c"PMIx_Finalize")?, symbol(c"PMIx_Error_string")?];
        Ok(Self {
            // SAFETY: the header declares `PMIx_Init` with this type, in all versions with this
            // library name.
            init: unsafe {
                std::mem::transmute::<*mut _, unsafe extern "C" fn(*mut Proc, *mut Info, usize) -> c_int>(init)
            },
            // SAFETY: the header declares `PMIx_Put` with this type, in all versions with this
            // library name.
            put: unsafe {
                std::mem::transmute::<*mut _, unsafe extern "C" fn(u8, *const c_char, *mut Value) -> c_int>(put)
            },
            // SAFETY: the header declares `PMIx_Commit` with this type, in all versions with this
            // library name.
            commit: unsafe { std::mem::transmute::<*mut _, unsafe extern "C" fn() -> c_int>(commit) },
            // SAFETY: the header declares `PMIx_Get` with this type, in all versions with this
            // library name.
            get: unsafe {
                std::mem::transmute::<
                    *mut _,
                    unsafe extern "C" fn(*const Proc, *const c_char, *const Info, usize, *mut *mut Value) -> c_int,
                >(get)
            },
            // SAFETY: the header declares `PMIx_Finalize` with this type, in all versions with this
            // library name.
            finalize: unsafe {
                std::mem::transmute::<*mut _, unsafe extern "C" fn(*const Info, usize) -> c_int>(finalize)
            },
            // SAFETY: the header declares `PMIx_Error_string` with this type, in all versions with
            // this library name.
            error_string: unsafe {
                std::mem::transmute::<*mut _, unsafe extern "C" fn(c_int) -> *const c_char>(error_string)
            },
        })
    }

    pub(super) fn check(&self, doing: &'static str, status: c_int) -> Result<(), PmixError> {
        if status == SUCCESS {
            return Ok(());
        }
        // SAFETY: the function accepts any number.
        let text = unsafe { (self.error_string)(status) };
        let text = if text.is_null() {
            "no reason is known".to_owned()
        } else {
            // SAFETY: not null, so a C string, which the library never frees.
            unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
        };
        Err(PmixError::Failed { doing, status, text })
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;
    use std::path::Path;
    use std::process::Command;

    use super::*;

    const PROGRAM: &str = r#"
        #include <pmix.h>
        #include <stddef.h>
        #include <stdio.h>
        int main(void) {
            pmix_value_t value;
            printf("%zu %zu ", sizeof(pmix_proc_t), offsetof(pmix_proc_t, rank));
            printf("%zu %zu %zu ", sizeof(pmix_value_t), offsetof(pmix_value_t, data), sizeof value.data);
            printf("%zu %zu ", sizeof(pmix_byte_object_t), offsetof(pmix_byte_object_t, size));
            printf("%zu %zu %zu ", sizeof(pmix_info_t), offsetof(pmix_info_t, flags), offsetof(pmix_info_t, value));
            printf("%zu %zu ", sizeof(pmix_scope_t), sizeof(pmix_status_t));
            printf("%d %d %d %d %d %u ", PMIX_SUCCESS, PMIX_ERR_NOT_FOUND, PMIX_INT, PMIX_UINT32, PMIX_BYTE_OBJECT, PMIX_RANK_WILDCARD);
            printf("%d %s %s", PMIX_GLOBAL, PMIX_JOB_SIZE, PMIX_TIMEOUT);
            return 0;
        }
    "#;

    /// The folder in which Debian and others install the headers.
    fn headers() -> &'static Path {
        let places = ["/usr/lib/x86_64-linux-gnu/pmix2/include", "/usr/include"];
        let found = places.into_iter().map(Path::new).find(|place| place.join("pmix.h").exists());
        found.expect("the headers of PMIx are needed (on Debian: apt-get install libpmix-dev)")
    }

    #[test]
    fn layouts_and_numbers_match_the_headers() {
        farside_testbed::needs!("slurm");
        let headers = headers();
        let folder = std::env::temp_dir().join(format!("farside-pmix-layout-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (source, program) = (folder.join("layout.c"), folder.join("layout"));
        std::fs::write(&source, PROGRAM).unwrap();
        let compiled = Command::new("cc").arg("-I").arg(headers).arg("-o").args([&program, &source]).output().unwrap();
        assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
        let output = Command::new(&program).output().unwrap();
        std::fs::remove_dir_all(&folder).unwrap();

        let sizes = [
            size_of::<Proc>(),
            offset_of!(Proc, rank),
            size_of::<Value>(),
            offset_of!(Value, data),
            size_of::<Data>(),
            size_of::<ByteObject>(),
            offset_of!(ByteObject, size),
            size_of::<Info>(),
            offset_of!(Info, flags),
            offset_of!(Info, value),
            size_of::<u8>(),
            size_of::<c_int>(),
        ];
        let sizes = sizes.map(|size| size.to_string()).join(" ");
        let names = [JOB_SIZE, TIMEOUT].map(|name| name.to_str().unwrap()).join(" ");
        let numbers = format!("{SUCCESS} {NOT_FOUND} {INT} {UINT32} {BYTE_OBJECT} {RANK_WILDCARD} {GLOBAL}");
        assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("{sizes} {numbers} {names}"));
    }

    #[test]
    fn a_piece_of_information_is_where_the_library_looks_for_it() {
        let info = Info::integer(TIMEOUT, 7);
        // SAFETY: the key ends with at least one zero byte.
        assert_eq!(unsafe { CStr::from_ptr(info.key.as_ptr()) }, TIMEOUT);
        // SAFETY: the number is the member of the union that was written last.
        assert_eq!((info.flags, info.value.kind, unsafe { info.value.data.integer }), (0, INT, 7));
    }
}
