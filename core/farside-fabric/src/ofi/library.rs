//! libfabric, opened on request.

#![expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "a walk through libfabric's structures is one step, with one proof"
)]

use std::ffi::{CStr, CString, c_int, c_void};
use std::mem::transmute;
use std::ptr::{self, NonNull};

use farside_sys::library::{Library, LibraryError};

use super::ffi;
use crate::transport::FabricError;

/// The address of a function of the library.
type Address = NonNull<c_void>;

/// The functions that the library exports. All other functions are in tables of the objects that
/// these create.
#[derive(Clone, Copy)]
pub(super) struct Api {
    getinfo: ffi::Getinfo,
    freeinfo: ffi::Freeinfo,
    dupinfo: ffi::Dupinfo,
    fabric: ffi::OpenFabric,
    strerror: ffi::Strerror,
    version: ffi::Version,
}

impl std::fmt::Debug for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (major, minor) = self.version();
        write!(f, "libfabric {major}.{minor}")
    }
}

impl Api {
    /// Opens the library.
    ///
    /// # Errors
    /// [`FabricError::Unavailable`], with the name of the package that contains it.
    pub(super) fn open() -> Result<Self, FabricError> {
        Self::find().map_err(|error| FabricError::Unavailable {
            what: "libfabric".to_owned(),
            why: error.to_string(),
            remedy: "install it (on Debian and Ubuntu: apt-get install libfabric1), or set LD_LIBRARY_PATH to where \
                     libfabric.so.1 is",
        })
    }

    fn find() -> Result<Self, LibraryError> {
        // SAFETY: libfabric's initialisers read the environment and register its providers; the
        // library is made to be opened in this way.
        let library = unsafe { Library::open(c"libfabric.so.1") }?;
        // The structures of `ffi` are those of this version, whatever the library's default is.
        let info = |name: &CStr| library.symbol(name, Some(c"FABRIC_1.3"));
        let (getinfo, freeinfo, dupinfo) = (info(c"fi_getinfo")?, info(c"fi_freeinfo")?, info(c"fi_dupinfo")?);
        let fabric = library.symbol(c"fi_fabric", Some(c"FABRIC_1.1"))?;
        let strerror = library.symbol(c"fi_strerror", Some(c"FABRIC_1.0"))?;
        let version = library.symbol(c"fi_version", Some(c"FABRIC_1.0"))?;
        // SAFETY: these are the types that the headers declare for the functions of these names and
        // versions (a test compares the structures that they take), and the library is never
        // closed.
        unsafe {
            Ok(Self {
                getinfo: transmute::<Address, ffi::Getinfo>(getinfo),
                freeinfo: transmute::<Address, ffi::Freeinfo>(freeinfo),
                dupinfo: transmute::<Address, ffi::Dupinfo>(dupinfo),
                fabric: transmute::<Address, ffi::OpenFabric>(fabric),
                strerror: transmute::<Address, ffi::Strerror>(strerror),
                version: transmute::<Address, ffi::Version>(version),
            })
        }
    }

    /// The library's version.
    pub(super) fn version(&self) -> (u32, u32) {
        // SAFETY: the function has no arguments and reads a constant.
        let version = unsafe { (self.version)() };
        (version >> 16, version & 0xffff)
    }

    /// Returns the meaning of an error number. Its sign does not matter.
    pub(super) fn explain(&self, code: i32) -> String {
        // SAFETY: any number is allowed; the text is a constant, or belongs to this thread until
        // the next call.
        let text = unsafe { CStr::from_ptr((self.strerror)(code.saturating_abs())) };
        text.to_string_lossy().into_owned()
    }

    /// Builds the error for a failed call.
    pub(super) fn failed(&self, doing: &'static str, provider: &str, code: i32) -> FabricError {
        FabricError::Provider {
            doing,
            provider: provider.to_owned(),
            why: self.explain(code),
            code: code.saturating_abs(),
        }
    }

    /// Finds the fabrics that can do what Farside needs, in the library's order of preference.
    pub(super) fn find_fabrics(&self, provider: Option<&str>, address: Option<&str>) -> Result<InfoList, FabricError> {
        self.search(ffi::EP_RDM, provider, address.map(|address| (address, None)))
    }

    /// Finds fabrics for connected endpoints: at an address of this machine, or with a peer's
    /// address and port, to connect to it.
    pub(super) fn find_connected(
        &self,
        provider: &str,
        address: Option<(&str, Option<&str>)>,
    ) -> Result<InfoList, FabricError> {
        self.search(ffi::EP_MSG, Some(provider), address)
    }

    /// Finds fabrics. An address without a port is one of this machine.
    fn search(
        &self,
        endpoints: c_int,
        provider: Option<&str>,
        address: Option<(&str, Option<&str>)>,
    ) -> Result<InfoList, FabricError> {
        let unavailable = |why: String| FabricError::Unavailable {
            what: format!("libfabric's provider {}", provider.unwrap_or("(any)")),
            why,
            remedy: "`farside info` lists what there is; a provider needs its device, and an address must be one of this \
                     machine",
        };
        let text = |text: Option<&str>| {
            let converted = text.map(CString::new).transpose();
            converted.map_err(|_| unavailable("its name or address has a zero byte in it".to_owned()))
        };
        let provider_name = text(provider)?;
        let (node, port) = (text(address.map(|(node, _)| node))?, text(address.and_then(|(_, port)| port))?);
        let hints = self.hints(endpoints, provider_name)?;
        let mut found = ptr::null_mut();
        let pointer = |text: &Option<CString>| text.as_ref().map_or(ptr::null(), |text| text.as_ptr());
        let flags = if node.is_some() && port.is_none() { ffi::SOURCE } else { 0 };
        // SAFETY: the strings live until the call returns; `hints` is an info that the library
        // allocated; `found` receives a list.
        let code = unsafe {
            (self.getinfo)(ffi::API_VERSION, pointer(&node), pointer(&port), flags, hints.as_ptr(), &mut found)
        };
        if code != 0 {
            let why = match -code {
                ffi::ENODATA => "the provider or its device is missing".to_owned(),
                code => self.explain(code),
            };
            return Err(unavailable(why));
        }
        Ok(InfoList { api: *self, first: found })
    }

    /// Builds Farside's request to a fabric: ordered messages, puts and gets. It requests no
    /// atomics, which would cost other guarantees.
    fn hints(&self, endpoints: c_int, provider: Option<CString>) -> Result<Hints, FabricError> {
        // SAFETY: a null pointer requests an empty info.
        let info = unsafe { (self.dupinfo)(ptr::null()) };
        if info.is_null() {
            return Err(self.failed("allocating hints", "(any)", libc_enomem()));
        }
        // SAFETY: the library has just allocated the info with all its parts, and nothing else
        // refers to it.
        unsafe {
            (*info).caps = ffi::MSG | ffi::RMA;
            (*info).mode = ffi::MODE_CONTEXT | ffi::MODE_CONTEXT2 | ffi::MODE_RX_CQ_DATA;
            (*(*info).ep_attr).ep_type = endpoints;
            (*(*info).domain_attr).threading = ffi::THREAD_SAFE;
            (*(*info).domain_attr).resource_mgmt = ffi::RM_ENABLED;
            (*(*info).domain_attr).mr_mode =
                ffi::MR_LOCAL | ffi::MR_VIRT_ADDR | ffi::MR_ALLOCATED | ffi::MR_PROV_KEY | ffi::MR_ENDPOINT;
            (*(*info).tx_attr).msg_order = ffi::ORDER_SAS;
            (*(*info).rx_attr).msg_order = ffi::ORDER_SAS;
            if let Some(provider) = &provider {
                (*(*info).fabric_attr).prov_name = provider.as_ptr().cast_mut();
            }
        }
        Ok(Hints { api: *self, info, _provider: provider })
    }

    /// Opens a fabric.
    pub(super) fn open_fabric(&self, info: &OneInfo) -> Result<*mut ffi::Fabric, c_int> {
        let mut fabric = ptr::null_mut();
        // SAFETY: the attributes are part of an info that the library allocated.
        let code = unsafe { (self.fabric)((*info.as_ptr()).fabric_attr, &mut fabric, ptr::null_mut()) };
        if code == 0 { Ok(fabric) } else { Err(code) }
    }
}

/// For tests without the library.
#[cfg(test)]
impl Api {
    pub(super) fn fake(
        getinfo: ffi::Getinfo,
        freeinfo: ffi::Freeinfo,
        dupinfo: ffi::Dupinfo,
        fabric: ffi::OpenFabric,
        strerror: ffi::Strerror,
        version: ffi::Version,
    ) -> Self {
        Self { getinfo, freeinfo, dupinfo, fabric, strerror, version }
    }

    /// Wraps a description that [`freeinfo`](ffi::Freeinfo) of this library accepts.
    pub(super) fn fake_info(self, info: *mut ffi::Info) -> OneInfo {
        OneInfo { api: self, info }
    }
}

fn libc_enomem() -> i32 {
    12
}

/// The request to a fabric. The provider's name belongs to Farside, and is removed before the
/// library frees the rest.
struct Hints {
    api: Api,
    info: *mut ffi::Info,
    _provider: Option<CString>,
}

impl Hints {
    fn as_ptr(&self) -> *const ffi::Info {
        self.info
    }
}

impl Drop for Hints {
    fn drop(&mut self) {
        // SAFETY: the library allocated the info, and nothing else refers to it; the one pointer in
        // it that belongs to Farside is removed.
        unsafe {
            (*(*self.info).fabric_attr).prov_name = ptr::null_mut();
            (self.api.freeinfo)(self.info);
        }
    }
}

/// The fabrics that were found.
pub(super) struct InfoList {
    api: Api,
    first: *mut ffi::Info,
}

impl InfoList {
    /// Iterates over the fabrics.
    pub(super) fn iter(&self) -> impl Iterator<Item = FoundFabric<'_>> {
        let known = |info: *mut ffi::Info| (!info.is_null()).then_some(info);
        // SAFETY: the library allocated the list, which is complete and lives as long as `self`.
        let next = move |info: &*mut ffi::Info| known(unsafe { (**info).next });
        let all = std::iter::successors(known(self.first), next);
        all.map(|info| FoundFabric { list: self, info })
    }
}

impl Drop for InfoList {
    fn drop(&mut self) {
        // SAFETY: the library allocated the list, and this is its only owner.
        unsafe { (self.api.freeinfo)(self.first) };
    }
}

/// One of the fabrics that were found.
#[derive(Clone, Copy)]
pub(super) struct FoundFabric<'l> {
    list: &'l InfoList,
    info: *mut ffi::Info,
}

impl FoundFabric<'_> {
    /// The provider, as the library spells it.
    pub(super) fn provider(self) -> String {
        // SAFETY: an info that was found has all its parts, and lives as long as the list; the name
        // is null or a C string.
        unsafe {
            let name = (*(*self.info).fabric_attr).prov_name;
            if name.is_null() { String::new() } else { CStr::from_ptr(name).to_string_lossy().into_owned() }
        }
    }

    /// The device or interface.
    pub(super) fn domain(self) -> String {
        // SAFETY: an info that was found has all its parts, and lives as long as the list; the name
        // is null or a C string.
        unsafe {
            let name = (*(*self.info).domain_attr).name;
            if name.is_null() { String::new() } else { CStr::from_ptr(name).to_string_lossy().into_owned() }
        }
    }

    /// The bytes of its own address, if it already has one.
    pub(super) fn source(self) -> Vec<u8> {
        // SAFETY: an info that was found lives as long as the list; the address has as many bytes
        // as the info says.
        unsafe {
            let (address, bytes) = ((*self.info).src_addr, (*self.info).src_addrlen);
            if address.is_null() {
                Vec::new()
            } else {
                std::slice::from_raw_parts(address.cast::<u8>(), bytes).to_vec()
            }
        }
    }

    /// Copies its description, to open it.
    pub(super) fn to_info(self) -> Option<OneInfo> {
        // SAFETY: the info lives as long as the list; the copy is returned to this function alone.
        let info = unsafe { (self.list.api.dupinfo)(self.info) };
        (!info.is_null()).then_some(OneInfo { api: self.list.api, info })
    }
}

/// The description of one fabric, or of a peer that wants to connect.
pub(super) struct OneInfo {
    api: Api,
    info: *mut ffi::Info,
}

impl OneInfo {
    /// Takes over a description that the library gave out.
    ///
    /// # Safety
    /// The library allocated it with all its parts, and nothing else refers to it.
    pub(super) unsafe fn take(api: Api, info: *mut ffi::Info) -> Self {
        Self { api, info }
    }

    pub(super) fn as_ptr(&self) -> *mut ffi::Info {
        self.info
    }
}

impl Drop for OneInfo {
    fn drop(&mut self) {
        // SAFETY: the library allocated the info, and this is its only owner.
        unsafe { (self.api.freeinfo)(self.info) };
    }
}
