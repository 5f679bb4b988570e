//! libfabric's types and constants, as far as they are used here, declared by hand.
//!
//! This is the binary interface of API version 1.17 under the symbol version `FABRIC_1.3`, which
//! later libraries keep. A structure that libfabric allocates is declared up to the last field that
//! is read, and never created or moved here. A test compares sizes and offsets with the installed
//! headers.

use std::ffi::{c_char, c_int, c_void};

/// The result of the functions in a descriptor's table: 0, a count, or a negated error number.
pub(super) type Ssize = isize;
/// A peer in an address vector.
pub(super) type FiAddr = u64;

pub(super) const ADDR_UNSPEC: FiAddr = u64::MAX;

/// The requested version of the API: 1.17.
pub(super) const API_VERSION: u32 = (1 << 16) | 17;

pub(super) const MSG: u64 = 1 << 1;
pub(super) const RMA: u64 = 1 << 2;
pub(super) const READ: u64 = 1 << 8;
pub(super) const WRITE: u64 = 1 << 9;
pub(super) const RECV: u64 = 1 << 10;
pub(super) const SEND: u64 = 1 << 11;
pub(super) const REMOTE_READ: u64 = 1 << 12;
pub(super) const REMOTE_WRITE: u64 = 1 << 13;
pub(super) const COMPLETION: u64 = 1 << 24;
pub(super) const DELIVERY_COMPLETE: u64 = 1 << 28;
pub(super) const SOURCE: u64 = 1 << 57;
pub(super) const SELECTIVE_COMPLETION: u64 = 1 << 59;

pub(super) const MODE_CONTEXT: u64 = 1 << 59;
pub(super) const MODE_CONTEXT2: u64 = 1 << 52;
pub(super) const MODE_RX_CQ_DATA: u64 = 1 << 56;

pub(super) const MR_LOCAL: c_int = 1 << 2;
pub(super) const MR_VIRT_ADDR: c_int = 1 << 4;
pub(super) const MR_ALLOCATED: c_int = 1 << 5;
pub(super) const MR_PROV_KEY: c_int = 1 << 6;
pub(super) const MR_ENDPOINT: c_int = 1 << 9;

pub(super) const ORDER_SAS: u64 = 1 << 8;
pub(super) const ORDER_RMA_RAW: u64 = 1 << 33;
pub(super) const ORDER_RMA_WAW: u64 = 1 << 35;

pub(super) const EP_MSG: c_int = 1;
pub(super) const EP_RDM: c_int = 3;
pub(super) const AV_TABLE: c_int = 2;
pub(super) const THREAD_SAFE: c_int = 1;
pub(super) const RM_ENABLED: c_int = 2;
pub(super) const CQ_FORMAT_DATA: c_int = 3;
pub(super) const WAIT_NONE: c_int = 0;
pub(super) const WAIT_FD: c_int = 3;
pub(super) const CONTROL_GETWAIT: c_int = 5;
pub(super) const CONTROL_ENABLE: c_int = 6;

/// Events of an event queue.
pub(super) const CONNREQ: u32 = 1;
pub(super) const CONNECTED: u32 = 2;
pub(super) const SHUTDOWN: u32 = 3;

pub(super) const EAGAIN: Ssize = 11;
pub(super) const ENOSYS: c_int = 38;
pub(super) const ENODATA: c_int = 61;
pub(super) const EAVAIL: Ssize = 259;

/// Memory that a provider may use while an operation is in flight. The operation's context points
/// to it.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Context2(pub(super) [*mut c_void; 8]);

#[repr(C)]
pub(super) struct Info {
    pub(super) next: *mut Info,
    pub(super) caps: u64,
    pub(super) mode: u64,
    pub(super) addr_format: u32,
    pub(super) src_addrlen: usize,
    pub(super) dest_addrlen: usize,
    pub(super) src_addr: *mut c_void,
    pub(super) dest_addr: *mut c_void,
    pub(super) handle: *mut Fid,
    pub(super) tx_attr: *mut TxAttr,
    pub(super) rx_attr: *mut RxAttr,
    pub(super) ep_attr: *mut EpAttr,
    pub(super) domain_attr: *mut DomainAttr,
    pub(super) fabric_attr: *mut FabricAttr,
    pub(super) nic: *mut c_void,
}

#[repr(C)]
pub(super) struct TxAttr {
    pub(super) caps: u64,
    pub(super) mode: u64,
    pub(super) op_flags: u64,
    pub(super) msg_order: u64,
    pub(super) comp_order: u64,
    pub(super) inject_size: usize,
    pub(super) size: usize,
    pub(super) iov_limit: usize,
    pub(super) rma_iov_limit: usize,
    pub(super) tclass: u32,
}

#[repr(C)]
pub(super) struct RxAttr {
    pub(super) caps: u64,
    pub(super) mode: u64,
    pub(super) op_flags: u64,
    pub(super) msg_order: u64,
    pub(super) comp_order: u64,
    pub(super) total_buffered_recv: usize,
    pub(super) size: usize,
    pub(super) iov_limit: usize,
}

#[repr(C)]
pub(super) struct EpAttr {
    pub(super) ep_type: c_int,
    pub(super) protocol: u32,
    pub(super) protocol_version: u32,
    pub(super) max_msg_size: usize,
    pub(super) msg_prefix_size: usize,
    pub(super) max_order_raw_size: usize,
    pub(super) max_order_war_size: usize,
    pub(super) max_order_waw_size: usize,
}

#[repr(C)]
pub(super) struct DomainAttr {
    pub(super) domain: *mut Domain,
    pub(super) name: *mut c_char,
    pub(super) threading: c_int,
    pub(super) control_progress: c_int,
    pub(super) data_progress: c_int,
    pub(super) resource_mgmt: c_int,
    pub(super) av_type: c_int,
    pub(super) mr_mode: c_int,
    pub(super) mr_key_size: usize,
    pub(super) cq_data_size: usize,
}

#[repr(C)]
pub(super) struct FabricAttr {
    pub(super) fabric: *mut Fabric,
    pub(super) name: *mut c_char,
    pub(super) prov_name: *mut c_char,
    pub(super) prov_version: u32,
    pub(super) api_version: u32,
}

/// The beginning of every descriptor.
#[repr(C)]
pub(super) struct Fid {
    pub(super) fclass: usize,
    pub(super) context: *mut c_void,
    pub(super) ops: *const Ops,
}

#[repr(C)]
pub(super) struct Ops {
    pub(super) size: usize,
    pub(super) close: unsafe extern "C" fn(*mut Fid) -> c_int,
    pub(super) bind: unsafe extern "C" fn(*mut Fid, *mut Fid, u64) -> c_int,
    pub(super) control: unsafe extern "C" fn(*mut Fid, c_int, *mut c_void) -> c_int,
}

#[repr(C)]
pub(super) struct Fabric {
    pub(super) fid: Fid,
    pub(super) ops: *const FabricOps,
    pub(super) api_version: u32,
}

#[repr(C)]
pub(super) struct FabricOps {
    pub(super) size: usize,
    pub(super) domain: unsafe extern "C" fn(*mut Fabric, *mut Info, *mut *mut Domain, *mut c_void) -> c_int,
    pub(super) passive_ep: unsafe extern "C" fn(*mut Fabric, *mut Info, *mut *mut Pep, *mut c_void) -> c_int,
    pub(super) eq_open: unsafe extern "C" fn(*mut Fabric, *mut EqAttr, *mut *mut Eq, *mut c_void) -> c_int,
    pub(super) wait_open: *const c_void,
    pub(super) trywait: unsafe extern "C" fn(*mut Fabric, *mut *mut Fid, c_int) -> c_int,
}

#[repr(C)]
pub(super) struct Domain {
    pub(super) fid: Fid,
    pub(super) ops: *const DomainOps,
    pub(super) mr: *const MrOps,
}

#[repr(C)]
pub(super) struct DomainOps {
    pub(super) size: usize,
    pub(super) av_open: unsafe extern "C" fn(*mut Domain, *mut AvAttr, *mut *mut Av, *mut c_void) -> c_int,
    pub(super) cq_open: unsafe extern "C" fn(*mut Domain, *mut CqAttr, *mut *mut Cq, *mut c_void) -> c_int,
    pub(super) endpoint: unsafe extern "C" fn(*mut Domain, *mut Info, *mut *mut Ep, *mut c_void) -> c_int,
}

#[repr(C)]
pub(super) struct MrOps {
    pub(super) size: usize,
    pub(super) reg:
        unsafe extern "C" fn(*mut Fid, *const c_void, usize, u64, u64, u64, u64, *mut *mut Mr, *mut c_void) -> c_int,
}

#[repr(C)]
pub(super) struct Mr {
    pub(super) fid: Fid,
    pub(super) mem_desc: *mut c_void,
    pub(super) key: u64,
}

#[repr(C)]
pub(super) struct AvAttr {
    pub(super) av_type: c_int,
    pub(super) rx_ctx_bits: c_int,
    pub(super) count: usize,
    pub(super) ep_per_node: usize,
    pub(super) name: *const c_char,
    pub(super) map_addr: *mut c_void,
    pub(super) flags: u64,
}

#[repr(C)]
pub(super) struct Av {
    pub(super) fid: Fid,
    pub(super) ops: *const AvOps,
}

#[repr(C)]
pub(super) struct AvOps {
    pub(super) size: usize,
    pub(super) insert: unsafe extern "C" fn(*mut Av, *const c_void, usize, *mut FiAddr, u64, *mut c_void) -> c_int,
}

#[repr(C)]
pub(super) struct CqAttr {
    pub(super) size: usize,
    pub(super) flags: u64,
    pub(super) format: c_int,
    pub(super) wait_obj: c_int,
    pub(super) signaling_vector: c_int,
    pub(super) wait_cond: c_int,
    pub(super) wait_set: *mut c_void,
}

#[repr(C)]
pub(super) struct Cq {
    pub(super) fid: Fid,
    pub(super) ops: *const CqOps,
}

#[repr(C)]
pub(super) struct CqOps {
    pub(super) size: usize,
    pub(super) read: unsafe extern "C" fn(*mut Cq, *mut c_void, usize) -> Ssize,
    pub(super) readfrom: *const c_void,
    pub(super) readerr: unsafe extern "C" fn(*mut Cq, *mut CqErrEntry, u64) -> Ssize,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct CqDataEntry {
    pub(super) op_context: *mut c_void,
    pub(super) flags: u64,
    pub(super) len: usize,
    pub(super) buf: *mut c_void,
    pub(super) data: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct CqErrEntry {
    pub(super) op_context: *mut c_void,
    pub(super) flags: u64,
    pub(super) len: usize,
    pub(super) buf: *mut c_void,
    pub(super) data: u64,
    pub(super) tag: u64,
    pub(super) olen: usize,
    pub(super) err: c_int,
    pub(super) prov_errno: c_int,
    pub(super) err_data: *mut c_void,
    pub(super) err_data_size: usize,
}

#[repr(C)]
pub(super) struct EqAttr {
    pub(super) size: usize,
    pub(super) flags: u64,
    pub(super) wait_obj: c_int,
    pub(super) signaling_vector: c_int,
    pub(super) wait_set: *mut c_void,
}

#[repr(C)]
pub(super) struct Eq {
    pub(super) fid: Fid,
    pub(super) ops: *const EqOps,
}

#[repr(C)]
pub(super) struct EqOps {
    pub(super) size: usize,
    pub(super) read: unsafe extern "C" fn(*mut Eq, *mut u32, *mut c_void, usize, u64) -> Ssize,
    pub(super) readerr: unsafe extern "C" fn(*mut Eq, *mut EqErrEntry, u64) -> Ssize,
}

/// The start of an event about a connection. The peer's bytes follow.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct EqCmEntry {
    pub(super) fid: *mut Fid,
    pub(super) info: *mut Info,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct EqErrEntry {
    pub(super) fid: *mut Fid,
    pub(super) context: *mut c_void,
    pub(super) data: u64,
    pub(super) err: c_int,
    pub(super) prov_errno: c_int,
    pub(super) err_data: *mut c_void,
    pub(super) err_data_size: usize,
}

#[repr(C)]
pub(super) struct Pep {
    pub(super) fid: Fid,
    pub(super) ops: *const EpOps,
    pub(super) cm: *const CmOps,
}

#[repr(C)]
pub(super) struct Ep {
    pub(super) fid: Fid,
    pub(super) ops: *const EpOps,
    pub(super) cm: *const CmOps,
    pub(super) msg: *const MsgOps,
    pub(super) rma: *const RmaOps,
}

#[repr(C)]
pub(super) struct EpOps {
    pub(super) size: usize,
    pub(super) cancel: unsafe extern "C" fn(*mut Fid, *mut c_void) -> Ssize,
}

#[repr(C)]
pub(super) struct CmOps {
    pub(super) size: usize,
    pub(super) setname: *const c_void,
    pub(super) getname: unsafe extern "C" fn(*mut Fid, *mut c_void, *mut usize) -> c_int,
    pub(super) getpeer: *const c_void,
    pub(super) connect: unsafe extern "C" fn(*mut Ep, *const c_void, *const c_void, usize) -> c_int,
    pub(super) listen: unsafe extern "C" fn(*mut Pep) -> c_int,
    pub(super) accept: unsafe extern "C" fn(*mut Ep, *const c_void, usize) -> c_int,
    pub(super) reject: unsafe extern "C" fn(*mut Pep, *mut Fid, *const c_void, usize) -> c_int,
}

#[repr(C)]
pub(super) struct MsgOps {
    pub(super) size: usize,
    pub(super) recv: unsafe extern "C" fn(*mut Ep, *mut c_void, usize, *mut c_void, FiAddr, *mut c_void) -> Ssize,
    pub(super) recvv: *const c_void,
    pub(super) recvmsg: *const c_void,
    pub(super) send: *const c_void,
    pub(super) sendv: *const c_void,
    pub(super) sendmsg: unsafe extern "C" fn(*mut Ep, *const Msg, u64) -> Ssize,
}

#[repr(C)]
pub(super) struct RmaOps {
    pub(super) size: usize,
    pub(super) read: *const c_void,
    pub(super) readv: *const c_void,
    pub(super) readmsg: unsafe extern "C" fn(*mut Ep, *const MsgRma, u64) -> Ssize,
    pub(super) write: *const c_void,
    pub(super) writev: *const c_void,
    pub(super) writemsg: unsafe extern "C" fn(*mut Ep, *const MsgRma, u64) -> Ssize,
}

#[repr(C)]
pub(super) struct Iovec {
    pub(super) base: *mut c_void,
    pub(super) len: usize,
}

#[repr(C)]
pub(super) struct Msg {
    pub(super) msg_iov: *const Iovec,
    pub(super) desc: *mut *mut c_void,
    pub(super) iov_count: usize,
    pub(super) addr: FiAddr,
    pub(super) context: *mut c_void,
    pub(super) data: u64,
}

#[repr(C)]
pub(super) struct RmaIov {
    pub(super) addr: u64,
    pub(super) len: usize,
    pub(super) key: u64,
}

#[repr(C)]
pub(super) struct MsgRma {
    pub(super) msg_iov: *const Iovec,
    pub(super) desc: *mut *mut c_void,
    pub(super) iov_count: usize,
    pub(super) addr: FiAddr,
    pub(super) rma_iov: *const RmaIov,
    pub(super) rma_iov_count: usize,
    pub(super) context: *mut c_void,
    pub(super) data: u64,
}

pub(super) type Getinfo =
    unsafe extern "C" fn(u32, *const c_char, *const c_char, u64, *const Info, *mut *mut Info) -> c_int;
pub(super) type Freeinfo = unsafe extern "C" fn(*mut Info);
pub(super) type Dupinfo = unsafe extern "C" fn(*const Info) -> *mut Info;
pub(super) type OpenFabric = unsafe extern "C" fn(*mut FabricAttr, *mut *mut Fabric, *mut c_void) -> c_int;
pub(super) type Strerror = unsafe extern "C" fn(c_int) -> *const c_char;
pub(super) type Version = unsafe extern "C" fn() -> u32;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::mem::offset_of;
    use std::process::Command;

    use super::*;

    /// Collects sizes and offsets here, and the C program that prints those of the headers.
    struct Layouts {
        here: BTreeMap<String, u64>,
        program: String,
    }

    impl Layouts {
        fn note(&mut self, what: &str, expression: &str, here: u64) {
            self.here.insert(what.to_owned(), here);
            self.program
                .push_str(&format!("printf(\"%s %llu\\n\", \"{what}\", (unsigned long long)({expression}));\n"));
        }
    }

    macro_rules! offsets {
        ($layouts:ident: $($ours:ident = $theirs:literal { $($field:ident $(= $their_field:literal)?),* $(,)? })*) => {
            $($(
                let theirs = [$($their_field,)? stringify!($field)][0];
                let what = format!("{}.{theirs}", $theirs);
                $layouts.note(&what, &format!("offsetof({}, {theirs})", $theirs), offset_of!($ours, $field) as u64);
            )*)*
        };
    }

    macro_rules! sizes {
        ($layouts:ident: $($ours:ident = $theirs:literal)*) => {
            $(
                let what = format!("sizeof({})", $theirs);
                $layouts.note(&what, &what, size_of::<$ours>() as u64);
            )*
        };
    }

    macro_rules! constants {
        ($layouts:ident: $($ours:ident = $theirs:literal)*) => {
            $($layouts.note($theirs, $theirs, $ours as u64);)*
        };
    }

    fn layouts() -> Layouts {
        let mut layouts = Layouts { here: BTreeMap::new(), program: String::new() };
        offsets! { layouts:
            Info = "struct fi_info" {
                next, caps, mode, addr_format, src_addrlen, dest_addrlen, src_addr, dest_addr, handle, tx_attr, rx_attr, ep_attr,
                domain_attr, fabric_attr, nic,
            }
            TxAttr = "struct fi_tx_attr" {
                caps, mode, op_flags, msg_order, comp_order, inject_size, size, iov_limit, rma_iov_limit, tclass,
            }
            RxAttr = "struct fi_rx_attr" { op_flags, msg_order, comp_order, total_buffered_recv, size, iov_limit }
            EpAttr = "struct fi_ep_attr" {
                ep_type = "type", protocol, protocol_version, max_msg_size, msg_prefix_size, max_order_raw_size,
                max_order_war_size, max_order_waw_size,
            }
            DomainAttr = "struct fi_domain_attr" {
                domain, name, threading, control_progress, data_progress, resource_mgmt, av_type, mr_mode, mr_key_size,
                cq_data_size,
            }
            FabricAttr = "struct fi_fabric_attr" { fabric, name, prov_name, prov_version, api_version }
            Fid = "struct fid" { fclass, context, ops }
            Ops = "struct fi_ops" { size, close, bind, control }
            Fabric = "struct fid_fabric" { fid, ops, api_version }
            FabricOps = "struct fi_ops_fabric" { domain, passive_ep, eq_open, wait_open, trywait }
            Domain = "struct fid_domain" { fid, ops, mr }
            DomainOps = "struct fi_ops_domain" { av_open, cq_open, endpoint }
            MrOps = "struct fi_ops_mr" { reg }
            Mr = "struct fid_mr" { mem_desc, key }
            AvAttr = "struct fi_av_attr" { av_type = "type", rx_ctx_bits, count, ep_per_node, name, map_addr, flags }
            Av = "struct fid_av" { ops }
            AvOps = "struct fi_ops_av" { insert }
            CqAttr = "struct fi_cq_attr" { size, flags, format, wait_obj, signaling_vector, wait_cond, wait_set }
            Cq = "struct fid_cq" { ops }
            CqOps = "struct fi_ops_cq" { read, readfrom, readerr }
            CqDataEntry = "struct fi_cq_data_entry" { op_context, flags, len, buf, data }
            CqErrEntry = "struct fi_cq_err_entry" {
                op_context, flags, len, buf, data, tag, olen, err, prov_errno, err_data, err_data_size,
            }
            Ep = "struct fid_ep" { ops, cm, msg, rma }
            EpOps = "struct fi_ops_ep" { cancel }
            CmOps = "struct fi_ops_cm" { setname, getname, getpeer, connect, listen, accept, reject }
            Pep = "struct fid_pep" { fid, ops, cm }
            EqAttr = "struct fi_eq_attr" { size, flags, wait_obj, signaling_vector, wait_set }
            Eq = "struct fid_eq" { fid, ops }
            EqOps = "struct fi_ops_eq" { size, read, readerr }
            EqCmEntry = "struct fi_eq_cm_entry" { fid, info }
            EqErrEntry = "struct fi_eq_err_entry" { fid, context, data, err, prov_errno, err_data, err_data_size }
            MsgOps = "struct fi_ops_msg" { recv, recvv, recvmsg, send, sendv, sendmsg }
            RmaOps = "struct fi_ops_rma" { read, readv, readmsg, write, writev, writemsg }
            Iovec = "struct iovec" { base = "iov_base", len = "iov_len" }
            Msg = "struct fi_msg" { msg_iov, desc, iov_count, addr, context, data }
            RmaIov = "struct fi_rma_iov" { addr, len, key }
            MsgRma = "struct fi_msg_rma" { msg_iov, desc, iov_count, addr, rma_iov, rma_iov_count, context, data }
        }
        // The structures that are created here.
        sizes! { layouts:
            Context2 = "struct fi_context2" AvAttr = "struct fi_av_attr" CqAttr = "struct fi_cq_attr"
            EqAttr = "struct fi_eq_attr" EqCmEntry = "struct fi_eq_cm_entry" EqErrEntry = "struct fi_eq_err_entry"
            CqDataEntry = "struct fi_cq_data_entry" CqErrEntry = "struct fi_cq_err_entry" Iovec = "struct iovec"
            Msg = "struct fi_msg" RmaIov = "struct fi_rma_iov" MsgRma = "struct fi_msg_rma"
        }
        constants! { layouts:
            ADDR_UNSPEC = "FI_ADDR_UNSPEC" MSG = "FI_MSG" RMA = "FI_RMA" READ = "FI_READ" WRITE = "FI_WRITE"
            RECV = "FI_RECV" SEND = "FI_SEND" REMOTE_READ = "FI_REMOTE_READ" REMOTE_WRITE = "FI_REMOTE_WRITE"
            COMPLETION = "FI_COMPLETION" DELIVERY_COMPLETE = "FI_DELIVERY_COMPLETE" SOURCE = "FI_SOURCE"
            SELECTIVE_COMPLETION = "FI_SELECTIVE_COMPLETION" MODE_CONTEXT = "FI_CONTEXT" MODE_CONTEXT2 = "FI_CONTEXT2"
            MODE_RX_CQ_DATA = "FI_RX_CQ_DATA" MR_LOCAL = "FI_MR_LOCAL" MR_VIRT_ADDR = "FI_MR_VIRT_ADDR"
            MR_ALLOCATED = "FI_MR_ALLOCATED" MR_PROV_KEY = "FI_MR_PROV_KEY" MR_ENDPOINT = "FI_MR_ENDPOINT"
            ORDER_SAS = "FI_ORDER_SAS"
            ORDER_RMA_RAW = "FI_ORDER_RMA_RAW" ORDER_RMA_WAW = "FI_ORDER_RMA_WAW" EP_RDM = "FI_EP_RDM" EP_MSG = "FI_EP_MSG"
            CONNREQ = "FI_CONNREQ" CONNECTED = "FI_CONNECTED" SHUTDOWN = "FI_SHUTDOWN"
            AV_TABLE = "FI_AV_TABLE" THREAD_SAFE = "FI_THREAD_SAFE" RM_ENABLED = "FI_RM_ENABLED"
            CQ_FORMAT_DATA = "FI_CQ_FORMAT_DATA" WAIT_NONE = "FI_WAIT_NONE" WAIT_FD = "FI_WAIT_FD" ENOSYS = "FI_ENOSYS" CONTROL_GETWAIT = "FI_GETWAIT"
            CONTROL_ENABLE = "FI_ENABLE" EAGAIN = "FI_EAGAIN" ENODATA = "FI_ENODATA" EAVAIL = "FI_EAVAIL"
        }
        layouts
    }

    #[test]
    fn the_declarations_match_the_installed_headers() {
        farside_testbed::needs!("fabric");
        let layouts = layouts();
        let folder = std::env::temp_dir().join(format!("farside-ofi-layout-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let source = folder.join("layout.c");
        let headers = ["fabric", "fi_domain", "fi_endpoint", "fi_cm", "fi_rma", "fi_errno"];
        let includes: String = headers.iter().map(|name| format!("#include <rdma/{name}.h>\n")).collect();
        std::fs::write(
            &source,
            format!("#include <stdio.h>\n#include <stddef.h>\n#include <sys/uio.h>\n{includes}int main(void) {{\n{}return 0;\n}}\n", layouts.program),
        )
        .unwrap();
        let binary = folder.join("layout");
        let compiled = Command::new("cc").arg(&source).arg("-o").arg(&binary).output().unwrap();
        assert!(
            compiled.status.success(),
            "the headers of libfabric are needed (on Debian: apt-get install libfabric-dev): {}",
            String::from_utf8_lossy(&compiled.stderr)
        );
        let printed = Command::new(&binary).output().unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        let text = String::from_utf8(printed.stdout).unwrap();
        let there: BTreeMap<String, u64> = text
            .lines()
            .map(|line| line.rsplit_once(' ').unwrap())
            .map(|(what, value)| (what.to_owned(), value.parse().unwrap()))
            .collect();
        assert_eq!(there, layouts.here);
    }
}
