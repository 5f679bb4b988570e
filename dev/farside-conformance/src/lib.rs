//! Checks of the contract in [`transport`](farside_fabric::transport), which every fabric must
//! pass.
//!
//! The author of a [`Transport`] implements [`Fabric`] for a type that can start it, and generates
//! one test for each check:
//!
//! ```
//! use std::sync::Arc;
//!
//! use farside_conformance::Fabric;
//! use farside_fabric::sim::{SimFabric, SimOptions};
//! use farside_fabric::{FabricError, ProcessId, Transport};
//!
//! struct Simulated;
//!
//! impl Fabric for Simulated {
//!     fn name(&self) -> String {
//!         "sim".into()
//!     }
//!
//!     fn start(
//!         &self,
//!         processes: u32,
//!         starter_bytes: usize,
//!     ) -> Result<Vec<Arc<dyn Transport>>, FabricError> {
//!         let fabric = SimFabric::new(processes, starter_bytes, 1, SimOptions::default())?;
//!         Ok((0..processes).map(|number| fabric.endpoint(ProcessId::new(number))).collect())
//!     }
//! }
//!
//! farside_conformance::conformance_tests!(simulated, Simulated);
//! # farside_conformance::regions::new_memory_is_zero(&Simulated);
//! ```
//!
//! A check starts a fabric and gives each process a thread. It panics with the check's name if the
//! transport breaks the contract or the check does not end in time. In most checks each process has
//! a service thread that makes its progress, as in a job. The process itself then need not make
//! progress. Some checks have fewer service threads, and say so.
//!
//! A check accepts everything that the contract leaves open: it asserts no order that is not
//! promised, and no duration.

mod harness;

pub mod atomics;
pub mod ends;
pub mod messages;
pub mod operations;
pub mod queues;
pub mod regions;
pub mod user_memory;
pub mod waiting;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use farside_fabric::ids::ProcessId;
use farside_fabric::transport::{FabricError, Transport};
use farside_transmit::{Queue, QueueOptions};

/// A type that can start a fabric any number of times.
///
/// The checks assume that a message may have eight bytes, and do not ask for the limit first.
pub trait Fabric: Sync {
    /// The name of the fabric in the messages of failed checks.
    fn name(&self) -> String;

    /// Starts a fabric of `processes` processes, each with `starter_bytes` bytes of starter memory.
    /// Returns their endpoints, in order. A process is gone when its endpoint is dropped.
    ///
    /// # Errors
    /// The reason for which the fabric cannot start. It fails the check.
    fn start(&self, processes: u32, starter_bytes: usize) -> Result<Vec<Arc<dyn Transport>>, FabricError>;

    /// Returns a function that the thread of a process calls first. The threads that it starts
    /// inherit what the function changes. In this way a fabric can give each process a network of
    /// its own.
    fn entrance(&self, process: ProcessId) -> Box<dyn FnOnce() + Send> {
        let _ = process;
        Box::new(|| ())
    }

    /// Returns the function by which the checks open a queue from an endpoint of this fabric. A
    /// fabric whose queues [`Queue::open`] does not know returns its own.
    fn queue_opener(&self) -> QueueOpener {
        Queue::open
    }

    /// The time after which the check gives up waiting for an event that must happen. It is long,
    /// because a busy machine is not a fault.
    fn patience(&self) -> Duration {
        farside_testbed::limit()
    }
}

/// Opens a queue from an endpoint to a peer.
pub type QueueOpener = fn(&Arc<dyn Transport>, ProcessId, QueueOptions) -> Result<Queue, FabricError>;

/// One check of the suite.
#[derive(Clone, Copy)]
pub struct Check {
    /// The module and the name of the check.
    pub name: &'static str,
    /// The check, which panics if the fabric fails it.
    pub run: fn(&dyn Fabric),
}

impl fmt::Debug for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Check").field(&self.name).finish()
    }
}

/// Runs all checks in order.
///
/// # Panics
/// If a check fails.
pub fn run_all(fabric: &dyn Fabric) {
    for check in CHECKS {
        (check.run)(fabric);
    }
}

/// The only list of all checks: passes them to another macro, after the arguments of that macro.
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_checks {
    ([$($then:tt)+] $($context:tt)*) => {
        $($then)+! {
            $($context)*
            regions: {
                a_deregistered_key_is_stale,
                a_deregistered_key_fails_for_its_holders,
                an_unknown_key_is_refused,
                an_offered_region_is_attached_before_the_next_message,
                a_process_attaches_its_own_keys,
                a_reused_slot_has_a_new_generation,
                attached_returns_the_attached_region,
                regions_are_independent,
                existing_memory_is_registered,
                new_memory_is_zero,
                the_starter_is_attached_by_its_computed_key,
                threads_attach_the_same_key_at_once,
                memory_beyond_the_limit_is_an_error,
            }
            operations: {
                a_full_queue_of_operations_loses_nothing,
                a_put_is_visible_after_a_flag,
                a_put_is_visible_after_a_message,
                a_word_is_never_torn,
                accesses_outside_a_region_are_errors,
                outcomes_return_buffers_and_values,
                pipelined_puts_both_arrive,
                puts_and_gets_of_every_size,
                targets_without_progress_are_served,
                progress_of_the_caller_suffices,
            }
            user_memory: {
                a_holder_that_leaves_does_not_delay_deregistration,
                accesses_outside_user_memory_are_errors,
                changes_of_user_words_are_atomic,
                no_write_follows_the_end_of_deregistration,
                user_memory_is_given_back,
                user_memory_is_read_and_written,
                user_memory_may_be_read_only,
                the_same_memory_is_registered_twice,
            }
            queues: {
                a_full_queue_of_transfers_loses_nothing,
                a_queue_to_a_process_that_leaves_fails,
                a_signal_follows_all_transfers_before_it,
                an_overrun_is_an_error,
                threads_share_a_transmitter,
                transfers_of_every_size,
            }
            atomics: {
                changes_of_32_bits_follow_the_model,
                changes_of_64_bits_follow_the_model,
                commuting_changes_all_take_effect,
                compare_swaps_count,
                sums_lose_nothing,
                swaps_pass_on_each_value_once,
                atomics_of_the_owner_take_effect_too,
            }
            messages: {
                a_full_queue_of_messages_loses_nothing,
                a_message_to_an_unknown_process_is_an_error,
                a_message_beyond_the_maximum_is_an_error,
                a_process_sends_itself_messages,
                messages_between_all_pairs_keep_their_order,
            }
            waiting: {
                a_completion_ends_a_wait,
                a_message_ends_a_wait,
                a_message_that_another_thread_receives_ends_a_wait,
                a_readable_descriptor_ends_a_wait,
                a_wait_ends_at_its_deadline,
                a_wake_ends_a_wait,
                a_wake_ends_the_next_wait,
                an_idle_wait_sleeps,
            }
            ends: {
                a_process_that_leaves_is_reported_once,
                attaching_to_a_process_that_left_is_an_error,
                forgetting_a_peer_ends_waits,
                messages_of_a_process_that_leaves_have_no_gaps,
                operations_on_a_process_that_leaves_end,
            }
        }
    };
}

macro_rules! list_checks {
    ($($room:ident: { $($check:ident,)+ })+) => {
        /// All checks.
        pub const CHECKS: &[Check] = &[$($(
            Check { name: concat!(stringify!($room), "::", stringify!($check)), run: $room::$check },
        )+)+];
    };
}

conformance_checks! { [list_checks] }

/// Creates a module with one test for each check, for the fabric of the expression.
#[macro_export]
macro_rules! conformance_tests {
    (@each $module:ident, $fabric:expr; $($room:ident: { $($check:ident,)+ })+) => {
        mod $module {
            use super::*;
            $($(
                #[test]
                fn $check() {
                    $crate::$room::$check(&$fabric);
                }
            )+)+
        }
    };
    ($module:ident, $fabric:expr) => {
        $crate::conformance_checks! { [$crate::conformance_tests] @each $module, $fabric; }
    };
}
