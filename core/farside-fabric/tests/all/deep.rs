//! Tests that need more than this machine.

mod ofi_between_hosts;
