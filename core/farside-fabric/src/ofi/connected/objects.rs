//! libfabric's objects of connected endpoints, and all memory that they access.
//!
//! Only this file calls through libfabric's tables here. Its functions are safe: an object owns the
//! memory that libfabric may access through it, and closes the endpoint before it lets go of that.

#![expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "a call through libfabric's tables is one step, with one proof"
)]

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use farside_sys::shm::Mapping;

use crate::ofi::ffi;
use crate::ofi::flights::Flights;
use crate::ofi::library::{Api, OneInfo};
use crate::ofi::port::random_key;
use crate::ofi::provider;
use crate::transport::FabricError;

/// The bytes that a client passes with its request to connect. The connection manager of verbs
/// takes at most 55.
pub const PROOF_BYTES: usize = 32;
/// The room for an event: its start, and bytes of the peer.
const EVENT_BYTES: usize = 512;
/// The number of completions that a queue holds. It is more than operations are ever in flight.
const CQ_ENTRIES: usize = 512;

/// An opened fabric of a provider.
pub(super) struct Fabric {
    api: Api,
    provider: String,
    fabric: *mut ffi::Fabric,
}

// SAFETY: libfabric allows any thread to open objects of a fabric: its providers guard the fabric's
// lists by locks. The pointer is otherwise only compared and closed.
unsafe impl Send for Fabric {}
// SAFETY: as above.
unsafe impl Sync for Fabric {}

impl Fabric {
    /// Opens a fabric, and returns it with the description of what was found.
    pub(super) fn open(
        provider: &str,
        address: Option<(&str, Option<&str>)>,
    ) -> Result<(Arc<Self>, OneInfo), FabricError> {
        let api = Api::open()?;
        let info = provider::choose_connected(api, provider, address)?;
        let fabric = api.open_fabric(&info).map_err(|code| api.failed("opening the fabric", provider, code))?;
        Ok((Arc::new(Self { api, provider: provider.to_owned(), fabric }), info))
    }

    pub(super) fn provider(&self) -> &str {
        &self.provider
    }

    fn check(&self, doing: &'static str, code: c_int) -> Result<(), FabricError> {
        if code == 0 { Ok(()) } else { Err(self.failed(doing, code)) }
    }

    pub(super) fn failed(&self, doing: &'static str, code: c_int) -> FabricError {
        self.api.failed(doing, &self.provider, code)
    }

    /// Returns whether a thread may sleep on the descriptor of a queue.
    fn may_sleep(&self, queue: *mut ffi::Fid) -> bool {
        let mut fids = [queue];
        // SAFETY: the callers pass a queue of this fabric that they hold open.
        unsafe { ((*(*self.fabric).ops).trywait)(self.fabric, fids.as_mut_ptr(), 1) == 0 }
    }

    /// A copy of the descriptor of a queue, which the queue's owner may wait for.
    fn descriptor(&self, queue: *mut ffi::Fid) -> Result<OwnedFd, FabricError> {
        let mut fd: RawFd = -1;
        // SAFETY: the callers pass a queue of this fabric that they hold open, which was opened
        // with a descriptor to wait for.
        let code = unsafe { ((*(*queue).ops).control)(queue, ffi::CONTROL_GETWAIT, (&raw mut fd).cast()) };
        self.check("asking for a queue's descriptor", code)?;
        // SAFETY: the descriptor is the queue's, which stays open during this call.
        let shared = unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned();
        shared.map_err(|cause| FabricError::System { doing: "sharing a descriptor", cause })
    }
}

impl Drop for Fabric {
    fn drop(&mut self) {
        // SAFETY: every object of the fabric holds it, so none is left.
        unsafe { close(&raw mut (*self.fabric).fid) };
    }
}

/// Room for an event.
#[repr(C, align(8))]
struct EventRoom([u8; EVENT_BYTES]);

/// A queue of events about connections.
pub(super) struct Events {
    eq: *mut ffi::Eq,
    fd: OwnedFd,
    fabric: Arc<Fabric>,
}

// SAFETY: the queue has no thread of its own, and the pointer is used through `self` only.
unsafe impl Send for Events {}

/// An event in a queue of events.
pub(super) enum Event {
    /// A peer wants to connect. The bytes are those that it passed.
    Request(OneInfo, Vec<u8>),
    Connected,
    /// The peer has ended the connection.
    Ended,
    Other,
}

impl Events {
    fn open(fabric: &Arc<Fabric>) -> Result<Self, FabricError> {
        // SAFETY: zeros are valid attributes.
        let mut attributes: ffi::EqAttr = unsafe { std::mem::zeroed() };
        attributes.wait_obj = ffi::WAIT_FD;
        let mut eq = ptr::null_mut();
        // SAFETY: the fabric is open; the attributes live until the call returns.
        let code = unsafe {
            ((*(*fabric.fabric).ops).eq_open)(fabric.fabric, &mut attributes, &mut eq, ptr::null_mut::<c_void>())
        };
        fabric.check("opening the event queue", code)?;
        // SAFETY: the queue was just opened.
        match fabric.descriptor(unsafe { &raw mut (*eq).fid }) {
            Ok(fd) => Ok(Self { eq, fd, fabric: fabric.clone() }),
            Err(error) => {
                // SAFETY: the queue was just opened, and nothing uses it.
                unsafe { close(&raw mut (*eq).fid) };
                Err(error)
            }
        }
    }

    fn fid(&self) -> *mut ffi::Fid {
        // SAFETY: the queue is open.
        unsafe { &raw mut (*self.eq).fid }
    }

    /// Makes progress, and takes the next event.
    ///
    /// # Errors
    /// [`FabricError::Provider`] if the connection, or an attempt to make one, has failed.
    pub(super) fn next(&mut self) -> Result<Option<Event>, FabricError> {
        let mut room = EventRoom([0; EVENT_BYTES]);
        let mut kind = 0;
        // SAFETY: the queue is open; the room has as many bytes as are passed.
        let read = unsafe { ((*(*self.eq).ops).read)(self.eq, &mut kind, (&raw mut room).cast(), EVENT_BYTES, 0) };
        let head = size_of::<ffi::EqCmEntry>();
        match usize::try_from(read) {
            Ok(bytes) if kind == ffi::CONNREQ && bytes >= head => {
                // SAFETY: an event of this kind begins with such an entry, and the room is aligned
                // for it. Its description was made for this event, for its reader to free.
                let info =
                    unsafe { OneInfo::take(self.fabric.api, (*(&raw const room).cast::<ffi::EqCmEntry>()).info) };
                Ok(Some(Event::Request(info, room.0[head..bytes.min(EVENT_BYTES)].to_vec())))
            }
            Ok(_) if kind == ffi::CONNECTED => Ok(Some(Event::Connected)),
            Ok(_) if kind == ffi::SHUTDOWN => Ok(Some(Event::Ended)),
            Ok(_) => Ok(Some(Event::Other)),
            Err(_) if read == -ffi::EAGAIN => Ok(None),
            Err(_) if read == -ffi::EAVAIL => Err(self.failure()),
            Err(_) => Err(self.fabric.failed("reading the event queue", read as c_int)),
        }
    }

    fn failure(&mut self) -> FabricError {
        // SAFETY: zeros are a valid entry, one that offers no room for the provider's own data.
        let mut entry: ffi::EqErrEntry = unsafe { std::mem::zeroed() };
        // SAFETY: the queue is open.
        let read = unsafe { ((*(*self.eq).ops).readerr)(self.eq, &mut entry, 0) };
        self.fabric.failed("connecting endpoints", if read > 0 { entry.err } else { read as c_int })
    }

    pub(super) fn may_sleep(&self) -> bool {
        self.fabric.may_sleep(self.fid())
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        // SAFETY: whatever reports to the queue was closed before: it owns the queue.
        unsafe { close(self.fid()) };
    }
}

/// An endpoint that listens for requests to connect.
pub(super) struct Passive {
    pep: *mut ffi::Pep,
    pub(super) events: Events,
}

// SAFETY: the pointer is used through `self` only, and any thread may do that.
unsafe impl Send for Passive {}

impl Passive {
    pub(super) fn open(fabric: &Arc<Fabric>, info: &OneInfo) -> Result<Self, FabricError> {
        let events = Events::open(fabric)?;
        let mut pep = ptr::null_mut();
        // SAFETY: the fabric is open, and the info is one of it.
        let code = unsafe {
            ((*(*fabric.fabric).ops).passive_ep)(fabric.fabric, info.as_ptr(), &mut pep, ptr::null_mut::<c_void>())
        };
        fabric.check("opening the listening endpoint", code)?;
        let passive = Self { pep, events };
        // SAFETY: both objects are open.
        unsafe {
            let fid = &raw mut (*pep).fid;
            fabric.check("binding the event queue", ((*(*fid).ops).bind)(fid, passive.events.fid(), 0))?;
            fabric.check("listening", ((*(*pep).cm).listen)(pep))?;
        }
        Ok(passive)
    }

    /// The socket address at which it listens.
    pub(super) fn name(&self) -> Result<Vec<u8>, FabricError> {
        let mut name = vec![0_u8; 128];
        let mut bytes = name.len();
        // SAFETY: the endpoint is open; the buffer has `bytes` bytes.
        let code =
            unsafe { ((*(*self.pep).cm).getname)(&raw mut (*self.pep).fid, name.as_mut_ptr().cast(), &mut bytes) };
        self.events.fabric.check("asking for the endpoint's address", code)?;
        name.truncate(bytes);
        Ok(name)
    }

    /// Refuses a request that came from this endpoint.
    pub(super) fn reject(&self, request: &OneInfo) {
        // SAFETY: the endpoint is open; the handle is that of a request which was not accepted: an
        // accepted one is consumed. A failure means that the peer has gone.
        let _ = unsafe { ((*(*self.pep).cm).reject)(self.pep, (*request.as_ptr()).handle, ptr::null(), 0) };
    }
}

impl Drop for Passive {
    fn drop(&mut self) {
        // SAFETY: the endpoint is open, and nothing else refers to it. Its queue is closed later,
        // as a field.
        unsafe { close(&raw mut (*self.pep).fid) };
    }
}

/// The rights of peers to registered memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rights {
    /// This side uses it for its own operations.
    Local,
    Read,
    ReadAndWrite,
}

/// Memory that libfabric may access.
struct Registration {
    mr: NonNull<ffi::Mr>,
    memory: Arc<Mapping>,
}

/// One endpoint of a connection.
pub(super) struct Endpoint {
    ep: *mut ffi::Ep,
    cq: *mut ffi::Cq,
    cq_fd: Option<OwnedFd>,
    domain: *mut ffi::Domain,
    registrations: Vec<Option<Registration>>,
    /// Memory that was registered, and that libfabric may access until the endpoint is closed.
    left: Vec<Arc<Mapping>>,
    /// The operations in flight, with the numbers that the caller gave them.
    flights: Flights<usize>,
    virtual_addresses: bool,
    registers_with_endpoint: bool,
    pub(super) events: Events,
    info: OneInfo,
}

// SAFETY: the domain was opened with FI_THREAD_SAFE, so any thread may use its objects; the
// pointers are used through `self` only.
unsafe impl Send for Endpoint {}

/// A read or write of the peer's memory, from or to registered memory of this side.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transfer {
    pub(super) is_write: bool,
    /// The registered memory of this side, and the place in it.
    pub(super) local: usize,
    pub(super) local_offset: usize,
    pub(super) bytes: usize,
    pub(super) remote_address: u64,
    pub(super) remote_key: u64,
    /// The number that the completion reports.
    pub(super) number: usize,
}

impl Endpoint {
    /// Opens an endpoint, for a peer that was looked for or that has sent a request.
    pub(super) fn open(fabric: &Arc<Fabric>, info: OneInfo, operations_max: usize) -> Result<Self, FabricError> {
        assert!(operations_max < CQ_ENTRIES, "every completion finds room");
        // SAFETY: the library has filled the info, which has all its parts.
        let mr_mode = unsafe { (*(*info.as_ptr()).domain_attr).mr_mode };
        let mut endpoint = Self {
            ep: ptr::null_mut(),
            cq: ptr::null_mut(),
            cq_fd: None,
            domain: ptr::null_mut(),
            registrations: Vec::new(),
            left: Vec::new(),
            flights: Flights::new(operations_max),
            virtual_addresses: mr_mode & ffi::MR_VIRT_ADDR != 0,
            registers_with_endpoint: mr_mode & ffi::MR_ENDPOINT != 0,
            events: Events::open(fabric)?,
            info,
        };
        // After a failure, `drop` closes the parts that were opened.
        endpoint.open_parts()?;
        Ok(endpoint)
    }

    fn fabric(&self) -> &Fabric {
        &self.events.fabric
    }

    fn open_parts(&mut self) -> Result<(), FabricError> {
        let (fabric, info, null) = (self.events.fabric.clone(), self.info.as_ptr(), ptr::null_mut::<c_void>());
        // SAFETY: every call goes through the table of an object that the library has just created,
        // with the arguments that the headers declare; attributes live until the call returns.
        unsafe {
            let code = ((*(*fabric.fabric).ops).domain)(fabric.fabric, info, &mut self.domain, null);
            fabric.check("opening the domain", code)?;
            let mut attributes: ffi::CqAttr = std::mem::zeroed();
            attributes.size = CQ_ENTRIES;
            attributes.format = ffi::CQ_FORMAT_DATA;
            attributes.wait_obj = ffi::WAIT_FD;
            let code = ((*(*self.domain).ops).cq_open)(self.domain, &mut attributes, &mut self.cq, null);
            fabric.check("opening the completion queue", code)?;
            let cq = &raw mut (*self.cq).fid;
            self.cq_fd = Some(fabric.descriptor(cq)?);
            let code = ((*(*self.domain).ops).endpoint)(self.domain, info, &mut self.ep, null);
            fabric.check("opening the endpoint", code)?;
            let ep = &raw mut (*self.ep).fid;
            let bind = (*(*ep).ops).bind;
            fabric.check("binding the event queue", bind(ep, self.events.fid(), 0))?;
            fabric.check("binding the completion queue", bind(ep, cq, ffi::SEND | ffi::RECV))?;
            fabric.check("enabling the endpoint", ((*(*ep).ops).control)(ep, ffi::CONTROL_ENABLE, null))
        }
    }

    /// Begins to connect to the peer that was looked for. An event tells when it is connected.
    pub(super) fn connect(&mut self, proof: &[u8; PROOF_BYTES]) -> Result<(), FabricError> {
        // SAFETY: the endpoint is open. The address is that of the info, with which the library
        // opened the endpoint; the library copies the bytes.
        let code = unsafe {
            ((*(*self.ep).cm).connect)(self.ep, (*self.info.as_ptr()).dest_addr, proof.as_ptr().cast(), PROOF_BYTES)
        };
        self.fabric().check("connecting endpoints", code)
    }

    /// Accepts the request with which the endpoint was opened.
    pub(super) fn accept(&mut self) -> Result<(), FabricError> {
        // SAFETY: the endpoint is open, with the handle of a request that is consumed here.
        let code = unsafe { ((*(*self.ep).cm).accept)(self.ep, ptr::null(), 0) };
        self.fabric().check("accepting an endpoint", code)
    }

    /// Registers memory. Returns its number here, and key and base address for the peer.
    pub(super) fn register(&mut self, memory: Arc<Mapping>, rights: Rights) -> Result<(usize, u64, u64), FabricError> {
        let access = match rights {
            Rights::Local => ffi::READ | ffi::WRITE,
            Rights::Read => ffi::REMOTE_READ,
            Rights::ReadAndWrite => ffi::REMOTE_READ | ffi::REMOTE_WRITE,
        };
        let (key, base) = (random_key()?, memory.base().as_ptr());
        let mut mr = ptr::null_mut();
        // SAFETY: the domain is open. The memory is mapped as long as `memory` lives. `self` holds
        // it until the registration is closed or, where that is not enough, the endpoint is.
        let code = unsafe {
            let domain = &raw mut (*self.domain).fid;
            let reg = (*(*self.domain).mr).reg;
            reg(domain, base.cast(), memory.bytes(), access, 0, key, 0, &mut mr, ptr::null_mut())
        };
        self.fabric().check("registering memory (if its limit is why: `ulimit -l` shows it)", code)?;
        let mr = NonNull::new(mr).expect("a successful registration is not null");
        // A number is free again when its registration was closed.
        let free = self.registrations.iter().position(Option::is_none);
        let number = free.unwrap_or(self.registrations.len());
        if free.is_none() {
            self.registrations.push(None);
        }
        self.registrations[number] = Some(Registration { mr, memory });
        if self.registers_with_endpoint
            && let Err(error) = self.bind(mr)
        {
            self.deregister(number);
            return Err(error);
        }
        // SAFETY: the registration is open.
        let key = unsafe { (*mr.as_ptr()).key };
        Ok((number, key, if self.virtual_addresses { base.expose_provenance() as u64 } else { 0 }))
    }

    fn bind(&self, mr: NonNull<ffi::Mr>) -> Result<(), FabricError> {
        // SAFETY: the caller has just created the registration; the endpoint is open and enabled.
        unsafe {
            let fid = &raw mut (*mr.as_ptr()).fid;
            let code = ((*(*fid).ops).bind)(fid, &raw mut (*self.ep).fid, 0);
            self.fabric().check("binding memory to the endpoint", code)?;
            let code = ((*(*fid).ops).control)(fid, ffi::CONTROL_ENABLE, ptr::null_mut());
            self.fabric().check("enabling memory at the endpoint", code)
        }
    }

    /// Closes a registration. New accesses fail.
    pub(super) fn deregister(&mut self, number: usize) {
        let Some(Registration { mr, memory }) = self.registrations.get_mut(number).and_then(Option::take) else {
            return;
        };
        // SAFETY: the registration was in the list, so it is open, and nothing refers to it any
        // more.
        let is_closed = unsafe { close(&raw mut (*mr.as_ptr()).fid) };
        // The device of `verbs` accesses pages that the registration itself keeps, and none after
        // it was closed. Other providers copy in software. They do not stop a copy that is under
        // way.
        if !is_closed || self.fabric().provider() != "verbs" {
            self.left.push(memory);
        }
    }

    /// The number of memories that are registered or were, and are still held.
    pub(super) fn held(&self) -> usize {
        self.registrations.iter().flatten().count() + self.left.len()
    }

    /// Begins a transfer. Returns false if there is no room for it now.
    ///
    /// # Panics
    /// If the local memory is not registered, or the range is not inside it.
    pub(super) fn transfer(&mut self, transfer: &Transfer) -> Result<bool, FabricError> {
        let local = self.registrations.get(transfer.local).and_then(Option::as_ref).expect("it is registered");
        let end = transfer.local_offset.checked_add(transfer.bytes);
        assert!(end.is_some_and(|end| end <= local.memory.bytes()), "the range is inside the memory");
        let start = local.memory.base().as_ptr().wrapping_add(transfer.local_offset);
        let Ok(context) = self.flights.begin(transfer.number) else { return Ok(false) };
        let iov = ffi::Iovec { base: start.cast(), len: transfer.bytes };
        let remote = ffi::RmaIov { addr: transfer.remote_address, len: transfer.bytes, key: transfer.remote_key };
        // SAFETY: the registration is open.
        let mut descriptor = unsafe { (*local.mr.as_ptr()).mem_desc };
        let message = ffi::MsgRma {
            msg_iov: &iov,
            desc: &mut descriptor,
            iov_count: 1,
            addr: ffi::ADDR_UNSPEC,
            rma_iov: &remote,
            rma_iov_count: 1,
            context,
            data: 0,
        };
        // SAFETY: the endpoint is open; the vectors live until the call returns. The local memory
        // and the context belong to `self`, which keeps them until the endpoint is closed. No
        // reference points at the memory: all others copy from and to it. What the remote address
        // and key are is checked by the peer's side of libfabric.
        let code = unsafe {
            let rma = &*(*self.ep).rma;
            match transfer.is_write {
                true => (rma.writemsg)(self.ep, &message, ffi::COMPLETION | ffi::DELIVERY_COMPLETE),
                false => (rma.readmsg)(self.ep, &message, ffi::COMPLETION),
            }
        };
        if code == 0 {
            return Ok(true);
        }
        self.flights.end(context);
        if code == -ffi::EAGAIN { Ok(false) } else { Err(self.fabric().failed("posting a transfer", code as c_int)) }
    }

    /// Makes progress, and passes the numbers of transfers that have ended to `ended`.
    ///
    /// # Errors
    /// [`FabricError::Provider`] if one has failed. Nothing more goes over the endpoint then.
    pub(super) fn poll(&mut self, mut ended: impl FnMut(usize)) -> Result<usize, FabricError> {
        let mut entries = [MaybeUninit::<ffi::CqDataEntry>::uninit(); 32];
        // SAFETY: the queue is open, with entries of this format; there is room for as many as are
        // requested.
        let read = unsafe { ((*(*self.cq).ops).read)(self.cq, entries.as_mut_ptr().cast(), entries.len()) };
        match usize::try_from(read) {
            Ok(count) => {
                for entry in &entries[..count] {
                    // SAFETY: the library has filled in `count` entries.
                    let context = unsafe { entry.assume_init() }.op_context;
                    self.flights.end(context).into_iter().for_each(&mut ended);
                }
                Ok(count)
            }
            Err(_) if read == -ffi::EAGAIN => Ok(0),
            Err(_) if read == -ffi::EAVAIL => {
                // SAFETY: zeros are a valid entry, one that offers no room for the provider's data.
                let mut entry: ffi::CqErrEntry = unsafe { std::mem::zeroed() };
                // SAFETY: the queue is open.
                let read = unsafe { ((*(*self.cq).ops).readerr)(self.cq, &mut entry, 0) };
                Err(self.fabric().failed("a transfer", if read > 0 { entry.err } else { read as c_int }))
            }
            Err(_) => Err(self.fabric().failed("reading the completion queue", read as c_int)),
        }
    }

    /// Returns whether a thread may sleep on the [descriptors](Self::descriptors).
    pub(super) fn may_sleep(&self) -> bool {
        // SAFETY: the queue is open.
        self.fabric().may_sleep(unsafe { &raw mut (*self.cq).fid }) && self.events.may_sleep()
    }

    /// Copies of the descriptors that become readable when there is progress to make.
    pub(super) fn descriptors(&self) -> std::io::Result<[OwnedFd; 2]> {
        let cq_fd = self.cq_fd.as_ref().expect("an open endpoint has one");
        Ok([cq_fd.try_clone()?, self.events.fd().try_clone_to_owned()?])
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        let registrations = std::mem::take(&mut self.registrations);
        let close_all = || {
            for Registration { mr, .. } in registrations.iter().flatten() {
                // SAFETY: what is in the list is open, and nothing else refers to it.
                unsafe { close(&raw mut (*mr.as_ptr()).fid) };
            }
        };
        // SAFETY: each part is null, or open and known only here; the parts are closed before the
        // objects on which they were opened. After the endpoint is closed, libfabric accesses no
        // memory of its operations, nor their contexts. All of these are fields, or in
        // `registrations`, and are dropped after this. If it does not close, they stay.
        unsafe {
            if self.registers_with_endpoint {
                // An endpoint does not close while memory belongs to it.
                close_all();
            }
            if !self.ep.is_null() && !close(&raw mut (*self.ep).fid) {
                let flights = std::mem::replace(&mut self.flights, Flights::new(0));
                std::mem::forget((flights, std::mem::take(&mut self.left), registrations));
                return;
            }
            if !self.registers_with_endpoint {
                close_all();
            }
            if !self.cq.is_null() {
                close(&raw mut (*self.cq).fid);
            }
            if !self.domain.is_null() {
                close(&raw mut (*self.domain).fid);
            }
        }
    }
}

/// Closes an object. Returns false if it stays open.
///
/// # Safety
/// The descriptor is open, and nothing uses it any more.
unsafe fn close(fid: *mut ffi::Fid) -> bool {
    // SAFETY: the contract.
    unsafe { ((*(*fid).ops).close)(fid) == 0 }
}
