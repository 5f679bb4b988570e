//! One open endpoint of libfabric, and all objects that belong to it.
//!
//! Only this file and that of [connected](super::connected) endpoints call through libfabric's
//! tables. Its methods are `unsafe` where they pass memory that must not move until the operation
//! has ended.

#![expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "a call through libfabric's tables is one step, with one proof"
)]

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr::{self, NonNull};

use farside_sys::process::random_bytes;

use super::ffi::{self, FiAddr};
use super::library::{Api, OneInfo};
use crate::transport::FabricError;

/// Maximum number of completions that wait to be read. Small enough for soft-RoCE, which refuses
/// queues of more than 32,767.
const CQ_ENTRIES: usize = 4096;

/// One endpoint, with its address vector, completion queue and registrations.
pub(super) struct Port {
    api: Api,
    info: OneInfo,
    provider: String,
    attributes: Attributes,
    fabric: *mut ffi::Fabric,
    domain: *mut ffi::Domain,
    av: *mut ffi::Av,
    cq: *mut ffi::Cq,
    ep: *mut ffi::Ep,
    registrations: Vec<NonNull<ffi::Mr>>,
    /// `None` if the provider has no such descriptor.
    wait_fd: Option<RawFd>,
    /// The number of receives that are answered with [`Posted::Later`] from now on.
    #[cfg(test)]
    pub(super) refused_receives: std::cell::Cell<usize>,
}

// SAFETY: the domain was opened with FI_THREAD_SAFE, so any thread may use its objects; the
// pointers are used through `self` only.
unsafe impl Send for Port {}

impl std::fmt::Debug for Port {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Port").field("api", &self.api).field("provider", &self.provider).finish_non_exhaustive()
    }
}

/// The requirements and capabilities of a provider.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attributes {
    /// Local buffers must be registered, too.
    pub(super) registers_local: bool,
    /// Remote addresses are the owner's virtual addresses, not offsets.
    pub(super) virtual_addresses: bool,
    /// Registered memory belongs to an endpoint, and can be accessed only through it.
    pub(super) registers_with_endpoint: bool,
    /// The longest transfer.
    pub(super) bytes_max: usize,
    /// Puts and gets of up to this many bytes take effect at a peer in the order in which they are
    /// posted, after all earlier puts. `None` if the provider does not guarantee that.
    pub(super) ordered_bytes_max: Option<usize>,
}

/// Memory that the provider may access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Registration {
    mr: NonNull<ffi::Mr>,
    /// The key by which a peer names the memory.
    pub(super) key: u64,
}

// SAFETY: the pointer is only passed back to its `Port`.
unsafe impl Send for Registration {}

/// The rights to registered memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rights {
    /// All accesses, by both sides.
    All,
    /// This process may send from the memory, receive into it, and use it for its puts and gets.
    Local,
    /// Peers may read the memory.
    Read,
}

/// The result of posting an operation.
#[derive(Debug)]
pub(super) enum Posted {
    /// The operation is in flight.
    Yes,
    /// There is no room now, or the connection is being established.
    Later,
}

/// The result of polling the completion queue.
pub(super) enum Polled {
    Nothing,
    /// This many operations have succeeded.
    Done(usize),
    /// One operation has failed.
    Failed(Failure),
}

/// A failed operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Failure {
    pub(super) context: *mut c_void,
    pub(super) code: i32,
}

/// Memory for completions.
pub(super) type Entries = [MaybeUninit<ffi::CqDataEntry>; 32];

impl Port {
    /// Opens an endpoint on a fabric that was found, for a job of `peers` processes.
    ///
    /// # Errors
    /// [`FabricError::Provider`].
    pub(super) fn open(api: Api, info: OneInfo, provider: String, peers: usize) -> Result<Self, FabricError> {
        // SAFETY: the library found the info, which has all its parts.
        let attributes = unsafe {
            let info = info.as_ptr();
            let mr_mode = (*(*info).domain_attr).mr_mode;
            let ep = &*(*info).ep_attr;
            Attributes {
                registers_local: mr_mode & ffi::MR_LOCAL != 0,
                virtual_addresses: mr_mode & ffi::MR_VIRT_ADDR != 0,
                registers_with_endpoint: mr_mode & ffi::MR_ENDPOINT != 0,
                bytes_max: ep.max_msg_size,
                ordered_bytes_max: keeps_order(&provider, (*(*info).tx_attr).msg_order)
                    .then_some(ep.max_order_raw_size.min(ep.max_order_waw_size))
                    .filter(|bytes| *bytes > 0),
            }
        };
        let fabric = api.open_fabric(&info).map_err(|code| api.failed("opening the fabric", &provider, code))?;
        let mut port = Self {
            api,
            info,
            provider,
            attributes,
            fabric,
            domain: ptr::null_mut(),
            av: ptr::null_mut(),
            cq: ptr::null_mut(),
            ep: ptr::null_mut(),
            registrations: Vec::new(),
            wait_fd: None,
            #[cfg(test)]
            refused_receives: std::cell::Cell::default(),
        };
        // After a failure, `drop` closes the parts that were opened.
        port.open_parts(peers)?;
        Ok(port)
    }

    fn open_parts(&mut self, peers: usize) -> Result<(), FabricError> {
        let info = self.info.as_ptr();
        let null = ptr::null_mut::<c_void>();
        // SAFETY: every call goes through the table of an object that the library has just created,
        // with the arguments that the headers declare; attributes live until the call returns.
        unsafe {
            let code = ((*(*self.fabric).ops).domain)(self.fabric, info, &mut self.domain, null);
            self.check("opening the domain", code)?;

            let mut attributes: ffi::AvAttr = std::mem::zeroed();
            attributes.av_type = ffi::AV_TABLE;
            attributes.count = peers;
            let code = ((*(*self.domain).ops).av_open)(self.domain, &mut attributes, &mut self.av, null);
            self.check("opening the address vector", code)?;

            let mut attributes: ffi::CqAttr = std::mem::zeroed();
            attributes.size = CQ_ENTRIES;
            attributes.format = ffi::CQ_FORMAT_DATA;
            attributes.wait_obj = ffi::WAIT_FD;
            let mut code = ((*(*self.domain).ops).cq_open)(self.domain, &mut attributes, &mut self.cq, null);
            let has_fd = code != -ffi::ENOSYS;
            if !has_fd {
                attributes.wait_obj = ffi::WAIT_NONE;
                code = ((*(*self.domain).ops).cq_open)(self.domain, &mut attributes, &mut self.cq, null);
            }
            self.check("opening the completion queue", code)?;

            let code = ((*(*self.domain).ops).endpoint)(self.domain, info, &mut self.ep, null);
            self.check("opening the endpoint", code)?;
            let ep = &raw mut (*self.ep).fid;
            let (av, cq) = (&raw mut (*self.av).fid, &raw mut (*self.cq).fid);
            let bind = (*(*ep).ops).bind;
            self.check("binding the address vector", bind(ep, av, 0))?;
            // A send completes only where a completion is requested; a receive always does.
            self.check("binding the completion queue", bind(ep, cq, ffi::SEND | ffi::SELECTIVE_COMPLETION))?;
            self.check("binding the completion queue", bind(ep, cq, ffi::RECV))?;
            let enabled = ((*(*ep).ops).control)(ep, ffi::CONTROL_ENABLE, null);
            self.check("enabling the endpoint (FI_UNIVERSE_SIZE=16 makes its queues smaller)", enabled)?;

            if has_fd {
                let mut fd: c_int = -1;
                let code = ((*(*cq).ops).control)(cq, ffi::CONTROL_GETWAIT, (&raw mut fd).cast());
                self.check("asking for the queue's descriptor", code)?;
                self.wait_fd = Some(fd);
            }
        }
        Ok(())
    }

    fn check(&self, doing: &'static str, code: c_int) -> Result<(), FabricError> {
        if code == 0 { Ok(()) } else { Err(self.api.failed(doing, &self.provider, code)) }
    }

    pub(super) fn provider(&self) -> &str {
        &self.provider
    }

    pub(super) fn attributes(&self) -> Attributes {
        self.attributes
    }

    /// Treats a provider that does not require registered buffers like one that does.
    #[cfg(test)]
    pub(super) fn pretend_to_register_local(&mut self) {
        self.attributes.registers_local = true;
    }

    /// The address at which peers reach this endpoint.
    pub(super) fn address(&self) -> Result<Vec<u8>, FabricError> {
        let mut address = vec![0_u8; 512];
        let mut bytes = address.len();
        // SAFETY: the endpoint is open; the buffer has `bytes` bytes.
        let code =
            unsafe { ((*(*self.ep).cm).getname)(&raw mut (*self.ep).fid, address.as_mut_ptr().cast(), &mut bytes) };
        self.check("asking for the endpoint's address", code)?;
        address.truncate(bytes);
        Ok(address)
    }

    /// Adds a peer, and returns its handle. `address` is a value that the peer's `address` has
    /// returned.
    pub(super) fn insert(&self, address: &[u8]) -> Result<FiAddr, FabricError> {
        let mut peer = ffi::ADDR_UNSPEC;
        // SAFETY: one address is read, of the length that addresses of this format have: the caller
        // has compared it with our own.
        let inserted =
            unsafe { ((*(*self.av).ops).insert)(self.av, address.as_ptr().cast(), 1, &mut peer, 0, ptr::null_mut()) };
        if inserted == 1 {
            Ok(peer)
        } else {
            Err(self.api.failed("inserting a peer's address", &self.provider, inserted))
        }
    }

    /// Lets the provider access memory. `key` is used unless the provider selects the key.
    ///
    /// # Safety
    /// The memory stays mapped until the registration is given back or the port is dropped.
    pub(super) unsafe fn register(
        &mut self,
        start: *mut u8,
        bytes: usize,
        key: u64,
        rights: Rights,
    ) -> Result<Registration, FabricError> {
        let access = match rights {
            Rights::All => ffi::READ | ffi::WRITE | ffi::SEND | ffi::RECV | ffi::REMOTE_READ | ffi::REMOTE_WRITE,
            Rights::Local => ffi::READ | ffi::WRITE | ffi::SEND | ffi::RECV,
            Rights::Read => ffi::REMOTE_READ,
        };
        let mut mr = ptr::null_mut();
        // SAFETY: the domain is open; by the contract the memory exists.
        let code = unsafe {
            let domain = &raw mut (*self.domain).fid;
            ((*(*self.domain).mr).reg)(domain, start.cast(), bytes, access, 0, key, 0, &mut mr, ptr::null_mut())
        };
        self.check("registering memory (if its limit is why: `ulimit -l` shows it)", code)?;
        let mr = NonNull::new(mr).expect("a successful registration is not null");
        self.registrations.push(mr);
        let registration = |key| Registration { mr, key };
        if self.attributes.registers_with_endpoint
            && let Err(error) = self.bind(mr)
        {
            self.deregister(registration(0));
            return Err(error);
        }
        // SAFETY: the registration was just created and is open. A provider may select its key as
        // late as when it is enabled.
        Ok(registration(unsafe { (*mr.as_ptr()).key }))
    }

    /// Binds a registration to the endpoint.
    fn bind(&self, mr: NonNull<ffi::Mr>) -> Result<(), FabricError> {
        // SAFETY: the caller has just created the registration; the endpoint is open and enabled.
        unsafe {
            let fid = &raw mut (*mr.as_ptr()).fid;
            let code = ((*(*fid).ops).bind)(fid, &raw mut (*self.ep).fid, 0);
            self.check("binding memory to the endpoint", code)?;
            let code = ((*(*fid).ops).control)(fid, ffi::CONTROL_ENABLE, ptr::null_mut());
            self.check("enabling memory at the endpoint", code)
        }
    }

    /// Closes a registration, which no operation uses any more.
    pub(super) fn deregister(&mut self, registration: Registration) {
        let Some(index) = self.registrations.iter().position(|mr| *mr == registration.mr) else { return };
        let mr = self.registrations.swap_remove(index);
        // SAFETY: it was in the list, so it is open, and from now on nothing refers to it.
        unsafe { close(&raw mut (*mr.as_ptr()).fid) };
    }

    fn descriptor(&self, registration: Option<Registration>) -> *mut c_void {
        // SAFETY: registrations that were given out are open.
        registration.map_or(ptr::null_mut(), |registration| unsafe { (*registration.mr.as_ptr()).mem_desc })
    }

    /// Offers memory for the next message.
    ///
    /// # Safety
    /// Until the operation's completion or the end of the port, the memory is mapped and nothing
    /// else accesses it, and `context` points to a [`Context2`](ffi::Context2) of this operation
    /// alone.
    pub(super) unsafe fn receive(
        &self,
        start: *mut u8,
        bytes: usize,
        registration: Option<Registration>,
        context: *mut c_void,
    ) -> Result<Posted, FabricError> {
        #[cfg(test)]
        if let Some(left) = self.refused_receives.get().checked_sub(1) {
            self.refused_receives.set(left);
            return Ok(Posted::Later);
        }
        // SAFETY: the endpoint is open; the contract covers the rest.
        let code = unsafe {
            ((*(*self.ep).msg).recv)(
                self.ep,
                start.cast(),
                bytes,
                self.descriptor(registration),
                ffi::ADDR_UNSPEC,
                context,
            )
        };
        self.posted("posting a receive", code)
    }

    /// Sends a message and requests a completion.
    ///
    /// # Safety
    /// As for [`receive`](Self::receive), except that other code may read the memory.
    pub(super) unsafe fn send(
        &self,
        to: FiAddr,
        start: *const u8,
        bytes: usize,
        registration: Option<Registration>,
        context: *mut c_void,
    ) -> Result<Posted, FabricError> {
        let iov = ffi::Iovec { base: start.cast_mut().cast(), len: bytes };
        let mut descriptor = self.descriptor(registration);
        let message = ffi::Msg { msg_iov: &iov, desc: &mut descriptor, iov_count: 1, addr: to, context, data: 0 };
        // SAFETY: the endpoint is open; the vector lives until the call returns; the contract
        // covers the rest.
        let code = unsafe { ((*(*self.ep).msg).sendmsg)(self.ep, &message, ffi::COMPLETION) };
        self.posted("sending a message", code)
    }

    /// Writes a peer's memory, or reads it. The completion, if one is requested, comes when the
    /// bytes have arrived.
    ///
    /// # Safety
    /// As for [`send`](Self::send) when it writes, as for [`receive`](Self::receive) when it reads,
    /// for the memory from `start` on.
    pub(super) unsafe fn transfer(&self, piece: &Piece, start: *mut u8) -> Result<Posted, FabricError> {
        let iov = ffi::Iovec { base: start.cast(), len: piece.bytes };
        let remote = ffi::RmaIov { addr: piece.remote_address, len: piece.bytes, key: piece.remote_key };
        let mut descriptor = self.descriptor(piece.registration);
        let message = ffi::MsgRma {
            msg_iov: &iov,
            desc: &mut descriptor,
            iov_count: 1,
            addr: piece.peer,
            rma_iov: &remote,
            rma_iov_count: 1,
            context: piece.context,
            data: 0,
        };
        // SAFETY: the endpoint is open; the vectors live until the call returns; the contract
        // covers the rest.
        unsafe {
            let rma = &*(*self.ep).rma;
            match piece.kind {
                Kind::Put => {
                    let flags = if piece.is_reported { ffi::COMPLETION | ffi::DELIVERY_COMPLETE } else { 0 };
                    self.posted("writing to a peer", (rma.writemsg)(self.ep, &message, flags))
                }
                Kind::Get => {
                    let flags = if piece.is_reported { ffi::COMPLETION } else { 0 };
                    self.posted("reading from a peer", (rma.readmsg)(self.ep, &message, flags))
                }
            }
        }
    }

    fn posted(&self, doing: &'static str, code: ffi::Ssize) -> Result<Posted, FabricError> {
        match code {
            0 => Ok(Posted::Yes),
            code if code == -ffi::EAGAIN => Ok(Posted::Later),
            code => Err(self.api.failed(doing, &self.provider, code as i32)),
        }
    }

    /// Requests the cancellation of an operation. Its completion tells whether it was cancelled.
    ///
    /// # Safety
    /// `context` is that of an operation in flight.
    pub(super) unsafe fn cancel(&self, context: *mut c_void) {
        // SAFETY: the endpoint is open; the contract covers the rest. A refused cancellation is not
        // an error.
        let _ = unsafe { ((*(*self.ep).ops).cancel)(&raw mut (*self.ep).fid, context) };
    }

    /// Makes progress, and returns operations that have ended.
    pub(super) fn poll(&self, entries: &mut Entries) -> Result<Polled, FabricError> {
        // SAFETY: the queue is open, with entries of this format; there is room for as many as are
        // requested.
        let code = unsafe { ((*(*self.cq).ops).read)(self.cq, entries.as_mut_ptr().cast(), entries.len()) };
        match code {
            count if count > 0 => Ok(Polled::Done(count as usize)),
            0 => Ok(Polled::Nothing),
            code if code == -ffi::EAGAIN => Ok(Polled::Nothing),
            code if code == -ffi::EAVAIL => self.failure(),
            code => Err(self.api.failed("reading the completion queue", &self.provider, code as i32)),
        }
    }

    fn failure(&self) -> Result<Polled, FabricError> {
        // SAFETY: zeros are a valid entry, one that offers no room for the provider's own data.
        let mut entry: ffi::CqErrEntry = unsafe { std::mem::zeroed() };
        // SAFETY: the queue is open.
        let code = unsafe { ((*(*self.cq).ops).readerr)(self.cq, &mut entry, 0) };
        match code {
            1 => Ok(Polled::Failed(Failure { context: entry.op_context, code: entry.err })),
            code if code == -ffi::EAGAIN => Ok(Polled::Nothing),
            code => Err(self.api.failed("reading a failed completion", &self.provider, code as i32)),
        }
    }

    /// Returns whether a thread may sleep on the [descriptor](Self::fd), because it will announce
    /// every pending event.
    pub(super) fn may_sleep(&self) -> bool {
        if self.wait_fd.is_none() {
            return true;
        }
        // SAFETY: fabric and queue are open.
        unsafe {
            let mut fids = [&raw mut (*self.cq).fid];
            ((*(*self.fabric).ops).trywait)(self.fabric, fids.as_mut_ptr(), 1) == 0
        }
    }

    /// A descriptor that becomes readable when there is progress to make. `None` if the provider
    /// has none, and must be polled.
    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: the descriptor is the queue's, which is open as long as `self`.
        self.wait_fd.map(|fd| unsafe { BorrowedFd::borrow_raw(fd) })
    }
}

/// Returns a key that cannot be guessed: any program that can reach the endpoint may use a key that
/// it knows.
pub(super) fn random_key() -> Result<u64, FabricError> {
    let random = random_bytes().map_err(|cause| FabricError::System { doing: "getting random bytes", cause })?;
    Ok(u64::from_ne_bytes(random))
}

/// The direction of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Put,
    Get,
}

/// A put or get, or a piece of one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub(super) kind: Kind,
    pub(super) peer: FiAddr,
    pub(super) remote_address: u64,
    pub(super) remote_key: u64,
    pub(super) bytes: usize,
    pub(super) registration: Option<Registration>,
    pub(super) context: *mut c_void,
    /// True if a completion is requested. Otherwise only a failure is reported.
    pub(super) is_reported: bool,
}

/// Returns whether a provider guarantees the [order](Attributes::ordered_bytes_max), and is known
/// to keep it by construction. It must carry all traffic to a peer over one TCP stream, or over one
/// reliable verbs connection. None of them guarantees the order of *completions* (`FI_ORDER_NONE`
/// over `rxm`), and Farside does not rely on it.
fn keeps_order(provider: &str, msg_order: u64) -> bool {
    const PROMISED: u64 = ffi::ORDER_RMA_RAW | ffi::ORDER_RMA_WAW;
    matches!(provider, "tcp;ofi_rxm" | "tcp" | "verbs;ofi_rxm") && msg_order & PROMISED == PROMISED
}

impl Drop for Port {
    fn drop(&mut self) {
        // SAFETY: each part is null, or open and known only here; the parts are closed before the
        // objects on which they were opened. After the endpoint is closed nothing accesses any
        // buffer, and the buffers outlive the port.
        unsafe {
            if self.attributes.registers_with_endpoint {
                // An endpoint does not close while memory belongs to it.
                self.registrations.drain(..).for_each(|mr| close(&raw mut (*mr.as_ptr()).fid));
            }
            if !self.ep.is_null() {
                close(&raw mut (*self.ep).fid);
            }
            for mr in self.registrations.drain(..) {
                close(&raw mut (*mr.as_ptr()).fid);
            }
            if !self.cq.is_null() {
                close(&raw mut (*self.cq).fid);
            }
            if !self.av.is_null() {
                close(&raw mut (*self.av).fid);
            }
            if !self.domain.is_null() {
                close(&raw mut (*self.domain).fid);
            }
            close(&raw mut (*self.fabric).fid);
        }
    }
}

/// # Safety
/// The descriptor is open, and nothing uses it any more.
unsafe fn close(fid: *mut ffi::Fid) {
    // SAFETY: the contract. After a failure the object stays open, which cannot be mended here.
    let _ = unsafe { ((*(*fid).ops).close)(fid) };
}

#[cfg(test)]
mod tests;
