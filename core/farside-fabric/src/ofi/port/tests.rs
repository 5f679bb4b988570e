//! A fake provider that records the calls that it gets, and returns objects that can be bound and
//! closed.

use std::cell::{Cell, RefCell};
use std::ffi::c_char;

use super::*;

/// The names of objects in the records; the class of an object is its index.
const NAMES: [&str; 6] = ["fabric", "domain", "av", "cq", "ep", "mr"];
const FABRIC: usize = 0;
const DOMAIN: usize = 1;
const AV: usize = 2;
const CQ: usize = 3;
const EP: usize = 4;
const MR: usize = 5;

/// The key of a registration once it is enabled.
const KEY: u64 = 77;

thread_local! {
    static NOTES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    /// True if enabling memory succeeds.
    static ENABLES: Cell<bool> = const { Cell::new(true) };
}

fn note(what: String) {
    NOTES.with_borrow_mut(|notes| notes.push(what));
}

/// Allocates zeroed memory that is never freed.
fn zeroes<T>() -> *mut T {
    Box::leak(Box::new(MaybeUninit::<T>::zeroed())).as_mut_ptr()
}

/// Creates an object that begins with a descriptor of this class, and is otherwise zero.
fn object<T>(class: usize) -> *mut T {
    let ops = ffi::Ops { size: size_of::<ffi::Ops>(), close: fake_close, bind: fake_bind, control: fake_control };
    let object = zeroes::<T>();
    let fid = ffi::Fid { fclass: class, context: ptr::null_mut(), ops: Box::leak(Box::new(ops)) };
    // SAFETY: the object was just created, and its first field is a descriptor.
    unsafe { object.cast::<ffi::Fid>().write(fid) };
    object
}

fn name(fid: *mut ffi::Fid) -> &'static str {
    // SAFETY: descriptors here are those of objects, which are never freed.
    NAMES[unsafe { (*fid).fclass }]
}

unsafe extern "C" fn fake_close(fid: *mut ffi::Fid) -> c_int {
    note(format!("close {}", name(fid)));
    0
}

unsafe extern "C" fn fake_bind(fid: *mut ffi::Fid, to: *mut ffi::Fid, _: u64) -> c_int {
    note(format!("bind {} to {}", name(fid), name(to)));
    0
}

unsafe extern "C" fn fake_control(fid: *mut ffi::Fid, command: c_int, _: *mut c_void) -> c_int {
    assert_eq!(command, ffi::CONTROL_ENABLE);
    note(format!("enable {}", name(fid)));
    if name(fid) != NAMES[MR] {
        return 0;
    }
    // SAFETY: an object of this name is a registration.
    unsafe { (*fid.cast::<ffi::Mr>()).key = KEY };
    if ENABLES.get() { 0 } else { -12 }
}

unsafe extern "C" fn fake_fabric(_: *mut ffi::FabricAttr, made: *mut *mut ffi::Fabric, _: *mut c_void) -> c_int {
    let (fabric, ops) = (object::<ffi::Fabric>(FABRIC), zeroes::<ffi::FabricOps>());
    // SAFETY: both were just created, and the caller has room for a pointer.
    unsafe {
        (&raw mut (*ops).domain).write(fake_domain);
        (*fabric).ops = ops;
        *made = fabric;
    }
    0
}

unsafe extern "C" fn fake_domain(
    _: *mut ffi::Fabric,
    _: *mut ffi::Info,
    made: *mut *mut ffi::Domain,
    _: *mut c_void,
) -> c_int {
    let (domain, size) = (object::<ffi::Domain>(DOMAIN), size_of::<ffi::DomainOps>());
    let ops = ffi::DomainOps { size, av_open: fake_av, cq_open: fake_cq, endpoint: fake_ep };
    // SAFETY: the domain was just created, and the caller has room for a pointer.
    unsafe {
        (*domain).ops = Box::leak(Box::new(ops));
        (*domain).mr = Box::leak(Box::new(ffi::MrOps { size: size_of::<ffi::MrOps>(), reg: fake_reg }));
        *made = domain;
    }
    0
}

unsafe extern "C" fn fake_av(
    _: *mut ffi::Domain,
    _: *mut ffi::AvAttr,
    made: *mut *mut ffi::Av,
    _: *mut c_void,
) -> c_int {
    // SAFETY: the caller has room for a pointer.
    unsafe { *made = object(AV) };
    0
}

unsafe extern "C" fn fake_cq(
    _: *mut ffi::Domain,
    attributes: *mut ffi::CqAttr,
    made: *mut *mut ffi::Cq,
    _: *mut c_void,
) -> c_int {
    // SAFETY: the caller passes valid attributes.
    if unsafe { (*attributes).wait_obj } == ffi::WAIT_FD {
        return -ffi::ENOSYS;
    }
    // SAFETY: the caller has room for a pointer.
    unsafe { *made = object(CQ) };
    0
}

unsafe extern "C" fn fake_ep(_: *mut ffi::Domain, _: *mut ffi::Info, made: *mut *mut ffi::Ep, _: *mut c_void) -> c_int {
    let (ep, size) = (object::<ffi::Ep>(EP), size_of::<ffi::EpOps>());
    // SAFETY: the endpoint was just created, and the caller has room for a pointer.
    unsafe {
        (*ep).ops = Box::leak(Box::new(ffi::EpOps { size, cancel: fake_cancel }));
        *made = ep;
    }
    0
}

unsafe extern "C" fn fake_cancel(_: *mut ffi::Fid, _: *mut c_void) -> ffi::Ssize {
    unreachable!("nothing is in flight")
}

unsafe extern "C" fn fake_reg(
    _: *mut ffi::Fid,
    _: *const c_void,
    bytes: usize,
    _: u64,
    _: u64,
    _: u64,
    _: u64,
    made: *mut *mut ffi::Mr,
    _: *mut c_void,
) -> c_int {
    note(format!("register {bytes}"));
    // SAFETY: the caller has room for a pointer.
    unsafe { *made = object(MR) };
    0
}

unsafe extern "C" fn fake_freeinfo(_: *mut ffi::Info) {}

unsafe extern "C" fn fake_strerror(_: c_int) -> *const c_char {
    c"a simulated failure".as_ptr()
}

unsafe extern "C" fn never_getinfo(
    _: u32,
    _: *const c_char,
    _: *const c_char,
    _: u64,
    _: *const ffi::Info,
    _: *mut *mut ffi::Info,
) -> c_int {
    unreachable!("the fabric is already known")
}

unsafe extern "C" fn never_dupinfo(_: *const ffi::Info) -> *mut ffi::Info {
    unreachable!("the fabric is already known")
}

unsafe extern "C" fn fake_version() -> u32 {
    ffi::API_VERSION
}

/// Opens a port of a provider that requires these modes of registration.
fn port(mr_mode: c_int) -> Port {
    let api = Api::fake(never_getinfo, fake_freeinfo, never_dupinfo, fake_fabric, fake_strerror, fake_version);
    let (info, domain) = (zeroes::<ffi::Info>(), zeroes::<ffi::DomainAttr>());
    // SAFETY: all of them were just created.
    unsafe {
        (*domain).mr_mode = mr_mode;
        (*info).domain_attr = domain;
        (*info).ep_attr = zeroes::<ffi::EpAttr>();
        (*info).tx_attr = zeroes::<ffi::TxAttr>();
        (*info).fabric_attr = zeroes::<ffi::FabricAttr>();
    }
    let port = Port::open(api, api.fake_info(info), "fake".to_owned(), 2).unwrap();
    NOTES.take();
    port
}

fn register(port: &mut Port) -> Result<Registration, FabricError> {
    // SAFETY: nothing accesses the memory: the provider only records the call.
    unsafe { port.register(NonNull::dangling().as_ptr(), 64, 1, Rights::All) }
}

#[test]
fn memory_is_bound_where_the_provider_wants_it_and_closed_before_the_endpoint() {
    let mut port = port(ffi::MR_ENDPOINT | ffi::MR_PROV_KEY);
    let [first, second] = [0, 1].map(|_| register(&mut port).unwrap());
    assert_eq!(NOTES.take(), ["register 64", "bind mr to ep", "enable mr"].repeat(2));
    assert_eq!([first.key, second.key], [KEY; 2], "the key is known when the memory is enabled");
    port.deregister(first);
    assert_eq!(NOTES.take(), ["close mr"]);
    drop(port);
    assert_eq!(NOTES.take(), ["close mr", "close ep", "close cq", "close av", "close domain", "close fabric"]);
}

#[test]
fn memory_that_cannot_be_enabled_is_released() {
    let mut port = port(ffi::MR_ENDPOINT);
    ENABLES.set(false);
    let refused = register(&mut port).unwrap_err().to_string();
    assert!(
        refused.contains("enabling memory at the endpoint") && refused.contains("a simulated failure"),
        "{refused}"
    );
    assert_eq!(NOTES.take(), ["register 64", "bind mr to ep", "enable mr", "close mr"]);
    drop(port);
    assert!(!NOTES.take().contains(&"close mr".to_owned()), "it is closed once");
}

#[test]
fn memory_is_not_bound_where_the_provider_does_not_ask_for_it() {
    let mut port = port(ffi::MR_VIRT_ADDR);
    register(&mut port).unwrap();
    assert_eq!(NOTES.take(), ["register 64"]);
    drop(port);
    assert_eq!(NOTES.take()[..2], ["close ep", "close mr"], "operations end before their memory is closed");
}
