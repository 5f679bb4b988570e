//! Runs the conformance suite on every transport of this crate that needs no libfabric, and on a
//! faulty one: each check must find at least one fault.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use farside_conformance::{CHECKS, Fabric, QueueOpener};
use farside_fabric::shm::{ShmConfig, ShmEndpoint};
use farside_fabric::sim::{SimFabric, SimOptions};
use farside_fabric::{FabricError, ProcessId, Transport};
use farside_testbed::{deadline, is_past, limit};

use crate::faulty::{self, Fault, FaultyEnd};

struct Sim {
    seed: u64,
    options: SimOptions,
}

impl Sim {
    fn new(seed: u64) -> Self {
        Self { seed, options: SimOptions::default() }
    }
}

impl Fabric for Sim {
    fn name(&self) -> String {
        format!("sim with seed {} and {:?}", self.seed, self.options)
    }

    fn start(&self, processes: u32, starter_bytes: usize) -> Result<Vec<Arc<dyn Transport>>, FabricError> {
        let fabric = SimFabric::new(processes, starter_bytes, self.seed, self.options)?;
        Ok((0..processes).map(|number| fabric.endpoint(ProcessId::new(number))).collect())
    }
}

farside_conformance::conformance_tests!(sim_seed_1, Sim::new(1));

/// Shared memory. Private memory is reached by system calls, or as where the system refuses them.
struct Shm {
    user_by_system_call: bool,
}

impl Fabric for Shm {
    fn name(&self) -> String {
        let how = if self.user_by_system_call { "" } else { " without system calls" };
        format!("shm{how}")
    }

    fn start(&self, processes: u32, starter_bytes: usize) -> Result<Vec<Arc<dyn Transport>>, FabricError> {
        static STARTS: AtomicU32 = AtomicU32::new(0);
        let start = STARTS.fetch_add(1, Ordering::Relaxed);
        let job_id = u64::from(std::process::id()) << 32 | u64::from(start);
        let open = |number| -> Result<Arc<dyn Transport>, FabricError> {
            Ok(ShmEndpoint::open(ShmConfig {
                process: ProcessId::new(number),
                process_count: processes,
                job_id,
                secret: [7; 16],
                starter_bytes,
                user_by_system_call: self.user_by_system_call,
            })?)
        };
        (0..processes).map(open).collect()
    }
}

farside_conformance::conformance_tests!(shm, Shm { user_by_system_call: true });

/// The simulator with one fault. With [`Fault::None`] it passes the suite.
struct Faulty {
    fault: Fault,
    seed: u64,
    patience: Duration,
}

impl Fabric for Faulty {
    fn name(&self) -> String {
        format!("sim with seed {} and the fault {:?}", self.seed, self.fault)
    }

    fn start(&self, processes: u32, starter_bytes: usize) -> Result<Vec<Arc<dyn Transport>>, FabricError> {
        let needs_target_progress =
            matches!(self.fault, Fault::HidesNeedForTargets | Fault::ListensInReceiveOnly | Fault::NeverWakes);
        let options = SimOptions { needs_target_progress, ..SimOptions::default() };
        let ends = Sim { seed: self.seed, options }.start(processes, starter_bytes)?;
        Ok(FaultyEnd::around(ends, self.fault))
    }

    fn queue_opener(&self) -> QueueOpener {
        faulty::open_queue
    }

    fn patience(&self) -> Duration {
        self.patience
    }
}

/// The other kinds of the same fabrics.
mod deep {
    use super::*;

    farside_conformance::conformance_tests!(sim_seed_2, Sim::new(2));
    farside_conformance::conformance_tests!(
        sim_without_delays,
        Sim { seed: 3, options: SimOptions { delay_max_ns: 0, ..SimOptions::default() } }
    );
    farside_conformance::conformance_tests!(
        sim_that_needs_its_targets,
        Sim { seed: 4, options: SimOptions { needs_target_progress: true, ..SimOptions::default() } }
    );
    farside_conformance::conformance_tests!(
        sim_with_short_queues,
        Sim {
            seed: 5,
            options: SimOptions {
                delay_max_ns: 1000,
                operations_max: 4,
                messages_max: 1,
                message_bytes_max: 9,
                ..SimOptions::default()
            }
        }
    );
    farside_conformance::conformance_tests!(shm_without_system_calls, Shm { user_by_system_call: false });
    farside_conformance::conformance_tests!(
        sim_in_a_wrapper_without_fault,
        Faulty { fault: Fault::None, seed: 6, patience: limit() }
    );
}

/// How a check reports a fault. The text lists the words to expect, separated by " | ".
enum Finding {
    /// An assertion fails with one of these texts.
    Says(&'static str),
    /// A wait for something that never happens ends at its deadline, with one of these texts.
    WaitsInVain(&'static str),
}

/// Asserts that a check fails on a fabric with this fault, and for the right reason. The check runs
/// until it fails, since some faults show only in a race, which a busy machine makes rare.
fn assert_found(fault: Fault, check: &str, finding: &Finding) {
    let check = CHECKS.iter().find(|known| known.name == check).expect("the suite has such a check");
    let (words, mut patience) = match finding {
        Finding::Says(words) => (words, limit()),
        Finding::WaitsInVain(words) => (words, Duration::from_secs(1)),
    };
    let give_up = deadline();
    for seed in 0_u64.. {
        let fabric = Faulty { fault, seed, patience };
        if let Err(failure) = catch_unwind(AssertUnwindSafe(|| (check.run)(&fabric))) {
            let text = failure.downcast_ref::<String>().expect("a check says why it failed");
            if words.split(" | ").any(|words| text.contains(words)) {
                return;
            }
            // On a busy machine, another wait may have been longer than a short patience.
            patience *= 4;
            assert!(patience < limit(), "{} found {fault:?}, but not by {words:?}: {text}", check.name);
        }
        assert!(!is_past(give_up), "{} passes {} times in spite of {fault:?}", check.name, seed + 1);
    }
}

macro_rules! faults_are_found {
    ($($test:ident: $fault:ident by $check:literal, $finding:ident($words:literal);)+) => {
        $(
            #[test]
            fn $test() {
                assert_found(Fault::$fault, $check, &Finding::$finding($words));
            }
        )+

        /// A check that cannot fail would prove nothing.
        #[test]
        fn every_check_finds_a_fault() {
            let finding = BTreeSet::from([$($check),+]);
            let all: BTreeSet<&str> = CHECKS.iter().map(|check| check.name).collect();
            assert_eq!(all.difference(&finding).collect::<Vec<_>>(), Vec::<&&str>::new());
        }
    };
}

faults_are_found! {
    // Regions.
    another_starter: ReturnsAnotherStarter by "regions::the_starter_is_attached_by_its_computed_key",
        Says("assertion `left == right` failed");
    dirty_memory: ReusesRegions by "regions::new_memory_is_zero", Says("new memory");
    reused_names: ReusesRegions by "regions::a_reused_slot_has_a_new_generation",
        Says("names a region for the second time");
    stale_keys: KeepsKeys by "regions::a_deregistered_key_is_stale", Says("deregistering");
    attached_unknown_keys: AttachesAnything by "regions::an_unknown_key_is_refused", Says("attaching the stale");
    keys_kept_by_holders: KeepsKeys by "regions::a_deregistered_key_fails_for_its_holders", Says("is not attached any more");
    untyped_memory_error: HidesMemoryErrors by "regions::memory_beyond_the_limit_is_an_error", Says("bytes: Err");
    mixed_regions: MixesRegions by "regions::regions_are_independent", Says("view of a region");
    other_memory: RegistersOtherMemory by "regions::existing_memory_is_registered",
        Says("the memory itself is registered");
    one_attach_at_a_time: AttachesOnceAtATime by "regions::threads_attach_the_same_key_at_once", Says("attaching at once");
    forgotten_attachments: ForgetsAttached by "regions::attached_returns_the_attached_region",
        Says("the key was attached");
    offers_ignored: IgnoresOffers by "regions::an_offered_region_is_attached_before_the_next_message",
        Says("is not attached");
    own_regions_not_attached: RefusesItself by "regions::a_process_attaches_its_own_keys", Says("attaching failed");

    // Operations.
    put_too_long: PutsTooMuch by "operations::puts_and_gets_of_every_size", Says("a put's neighbourhood");
    put_too_short: PutsTooLittle by "operations::puts_and_gets_of_every_size", Says("a get of what was put");
    clipped_accesses: ClipsAccesses by "operations::accesses_outside_a_region_are_errors", Says("ended with Ok");
    lost_buffers: KeepsPutBuffers by "operations::outcomes_return_buffers_and_values", Says("a put of 1 bytes gives back others");
    lost_second_put: LosesPipelinedPuts by "operations::pipelined_puts_both_arrive",
        Says("put: | a word put twice holds");
    lost_when_full: LosesWhenFull by "operations::a_full_queue_of_operations_loses_nothing",
        Says("what a full queue wrote");
    spoilt_when_refused: SpoilsRefused by "operations::a_full_queue_of_operations_loses_nothing", Says("Put([0, 0, 0");
    early_completion_and_message: CompletesPutsEarly by "operations::a_put_is_visible_after_a_message",
        Says("a put before a message");
    early_completion_and_flag: CompletesPutsEarly by "operations::a_put_is_visible_after_a_flag",
        Says("a put before a flag");
    torn_words: TearsWords by "operations::a_word_is_never_torn", Says("a torn word");
    idle_service_thread: ListensInReceiveOnly by "operations::targets_without_progress_are_served",
        WaitsInVain("deadline passed");
    hidden_need_of_targets: HidesNeedForTargets by "operations::progress_of_the_caller_suffices",
        WaitsInVain("deadline passed");

    // User memory.
    endless_hold: LeavesOperationsOpen by "user_memory::a_holder_that_leaves_does_not_delay_deregistration",
        WaitsInVain("deadline passed | waited in vain");
    clipped_user_accesses: ClipsAccesses by "user_memory::accesses_outside_user_memory_are_errors",
        Says("ended with Ok");
    lost_user_adds: LosesAtomics by "user_memory::changes_of_user_words_are_atomic", Says("sums");
    early_end_of_deregistration: EndsDeregistrationsEarly by "user_memory::no_write_follows_the_end_of_deregistration",
        Says("it is ours again | whose deregistration is over");
    user_memory_kept: KeepsKeys by "user_memory::user_memory_is_given_back", Says("it is ours again");
    user_put_too_long: PutsTooMuch by "user_memory::user_memory_is_read_and_written",
        Says("a put's neighbourhood");
    ignored_rights: IgnoresRights by "user_memory::user_memory_may_be_read_only", Says("Ok(");
    one_registration: RegistersOnce by "user_memory::the_same_memory_is_registered_twice",
        Says("two regions have two keys");

    // Queues.
    queue_put_too_long: PutsTooMuch by "queues::transfers_of_every_size", Says("the byte behind it");
    early_signal: SignalsEarly by "queues::a_signal_follows_all_transfers_before_it", Says("before a signal");
    overwritten_units: SignalsEarly by "queues::threads_share_a_transmitter", Says("what a transmitter put");
    taken_overruns: TakesOverruns by "queues::an_overrun_is_an_error", Says("an overrun: Ok");
    lost_when_queue_of_transfers_is_full: LosesWhenFull by "queues::a_full_queue_of_transfers_loses_nothing",
        WaitsInVain("what a full queue put | deadline passed");
    open_queue_to_a_lost_peer: LeavesOperationsOpen by "queues::a_queue_to_a_process_that_leaves_fails",
        WaitsInVain("waited in vain for the loss of a peer | deadline passed");

    // Atomics.
    signed_compares: ComparesSigned by "atomics::changes_of_64_bits_follow_the_model", Says("after M");
    swap_without_compare_in_model: SwapsWithoutCompare by "atomics::changes_of_64_bits_follow_the_model",
        Says("after CompareSwap");
    carry_into_neighbour: AddsTooWide by "atomics::changes_of_32_bits_follow_the_model", Says("after Add");
    lost_adds: LosesAtomics by "atomics::sums_lose_nothing", Says("found twice or never");
    split_adds: SplitsAtomics by "atomics::sums_lose_nothing", Says("found twice or never");
    split_swaps: SplitsAtomics by "atomics::swaps_pass_on_each_value_once", Says("found twice or never");
    swap_without_compare: SwapsWithoutCompare by "atomics::compare_swaps_count",
        Says("found twice or never | lost more often than others won");
    split_from_owner: SplitsAtomicsFromOwner by "atomics::atomics_of_the_owner_take_effect_too",
        Says("found twice or never");
    lost_changes: LosesAtomics by "atomics::commuting_changes_all_take_effect",
        Says("assertion `left == right` failed");

    // Messages.
    reordered: ReordersMessages by "messages::messages_between_all_pairs_keep_their_order",
        Says("the next message of a peer");
    lost: LosesMessages by "messages::messages_between_all_pairs_keep_their_order", Says("the next message of a peer");
    repeated: RepeatsMessages by "messages::messages_between_all_pairs_keep_their_order",
        Says("the next message of a peer");
    cut: CutsMessages by "messages::messages_between_all_pairs_keep_their_order", Says("the length");
    from_another: MistakesSenders by "messages::messages_between_all_pairs_keep_their_order",
        Says("the next message of a peer");
    too_long: TakesMessagesTooLong by "messages::a_message_beyond_the_maximum_is_an_error", Says("Ok(())");
    lost_when_queue_is_full: LosesWhenFull by "messages::a_full_queue_of_messages_loses_nothing",
        WaitsInVain("waited in vain for a message");
    unknown_receiver: AcceptsUnknownProcesses by "messages::a_message_to_an_unknown_process_is_an_error", Says("Ok(())");
    own_messages_refused: RefusesItself by "messages::a_process_sends_itself_messages", Says("sending to myself failed");

    // Waiting.
    endless_wait: IgnoresDeadlines by "waiting::a_wait_ends_at_its_deadline",
        WaitsInVain("does not come to its end");
    busy_wait: NeverSleeps by "waiting::an_idle_wait_sleeps", WaitsInVain("waited in vain for an idle process");
    ignored_wake: IgnoresWakes by "waiting::a_wake_ends_a_wait", WaitsInVain("does not come to its end");
    early_wake: ForgetsEarlyWakes by "waiting::a_wake_ends_the_next_wait", WaitsInVain("does not come to its end");
    overslept_message: NeverWakes by "waiting::a_message_ends_a_wait",
        WaitsInVain("does not come to its end");
    overslept_message_of_another: NeverWakes by "waiting::a_message_that_another_thread_receives_ends_a_wait",
        WaitsInVain("does not come to its end | waited in vain");
    overslept_completion: NeverWakes by "waiting::a_completion_ends_a_wait",
        WaitsInVain("does not come to its end");
    ignored_descriptor: IgnoresDescriptors by "waiting::a_readable_descriptor_ends_a_wait",
        WaitsInVain("does not come to its end");

    // Ends.
    hidden_end: HidesEnds by "ends::a_process_that_leaves_is_reported_once",
        WaitsInVain("waited in vain for the news of an end");
    repeated_end: ReportsEndsTwice by "ends::a_process_that_leaves_is_reported_once", Says("is reported gone");
    sending_to_a_lost_peer: SendsToLostPeers by "ends::a_process_that_leaves_is_reported_once",
        Says("sending to one that left");
    attaching_to_a_lost_peer: AttachesAnything by "ends::attaching_to_a_process_that_left_is_an_error",
        Says("attaching to one that left");
    messages_of_a_lost_peer: InventsMessagesOfLostPeers by "ends::messages_of_a_process_that_leaves_have_no_gaps",
        Says("is silent");
    endless_operations: LeavesOperationsOpen by "ends::operations_on_a_process_that_leaves_end",
        WaitsInVain("an operation on a process that left");
    ignored_forget: IgnoresForget by "ends::forgetting_a_peer_ends_waits", Says("afterwards");
}
