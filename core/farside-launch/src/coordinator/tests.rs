//! Tests of the coordinator: against scripts, and against processes that behave arbitrarily.

use proptest::prelude::*;

use super::*;

const START_DEADLINE: Duration = Duration::from_secs(30);
const FINALIZE_DEADLINE: Duration = Duration::from_secs(20);
const SECRET: [u8; 16] = [7; 16];

fn plan(processes: u32) -> Plan {
    Plan { processes, job_id: 42, secret: SECRET, start_deadline: START_DEADLINE, finalize_deadline: FINALIZE_DEADLINE }
}

fn id(number: u32) -> ProcessId {
    ProcessId::new(number)
}

fn hello() -> ToCoordinator {
    ToCoordinator::Hello(greeting())
}

/// Returns the greeting of the processes in these tests.
fn greeting() -> Greeting {
    let shape = JobShape { processes: 3, threads: 1, without_body: 0 };
    Greeting { fingerprint: [1; 16], table_hash: 2, host: [5; 16], shape, fabric: FabricChoice::default() }
}

/// Returns a greeting from another machine.
fn hello_from(host: u8) -> ToCoordinator {
    ToCoordinator::Hello(Greeting { host: [host; 16], ..greeting() })
}

fn start() -> ToProcess {
    ToProcess::Start { job_id: 42, secret: SECRET }
}

/// A coordinator at a time that the test sets.
struct Script {
    coordinator: Coordinator,
    now: Duration,
}

impl Script {
    fn new(processes: u32) -> Self {
        Self { coordinator: Coordinator::new(plan(processes)), now: Duration::ZERO }
    }

    /// Returns a script in which all processes have greeted and were ordered to start.
    fn started(processes: u32) -> Self {
        let mut script = Self::new(processes);
        for process in 0..processes {
            assert_eq!(script.sent(), []);
            script.said(process, hello());
        }
        assert_eq!(script.sent(), to_all(0..processes, &start()));
        script
    }

    /// Returns a script in which all processes were ordered to return.
    fn finished(processes: u32) -> Self {
        let mut script = Self::started(processes);
        (0..processes).for_each(|process| script.idle(process, 0, 1, 1));
        assert_eq!(script.sent(), to_all(0..processes, &ToProcess::Confirm { round: 1 }));
        (0..processes).for_each(|process| script.idle(process, 1, 1, 1));
        assert_eq!(script.sent(), to_all(0..processes, &ToProcess::Finish));
        script
    }

    fn said(&mut self, process: u32, message: ToCoordinator) {
        self.coordinator.said(id(process), message, self.now);
    }

    fn idle(&mut self, process: u32, round: u32, sent: u64, executed: u64) {
        self.said(process, ToCoordinator::Idle { round, sent, executed });
    }

    fn failed(&mut self, process: u32, message: &str) {
        self.said(process, ToCoordinator::Failed { message: message.into(), because_of: None });
    }

    fn failed_of_a_loss(&mut self, process: u32, lost: u32) {
        self.said(process, ToCoordinator::Failed { message: "left alone".into(), because_of: Some(id(lost)) });
    }

    fn ended(&mut self, process: u32, end: ProcessEnd) {
        self.coordinator.ended(id(process), end, self.now);
    }

    /// Lets time pass until the moment at which the coordinator wants to be called again.
    fn sleep(&mut self) {
        self.now = self.coordinator.next_tick().expect("the coordinator waits for time to pass");
        self.coordinator.tick(self.now);
    }

    fn sent(&mut self) -> Vec<(u32, ToProcess)> {
        std::iter::from_fn(|| self.coordinator.next_message())
            .map(|(process, sent)| (process.number(), Arc::unwrap_or_clone(sent)))
            .collect()
    }

    /// Ends the remaining processes with status 0. Returns the verdict.
    fn verdict(mut self) -> Result<()> {
        let running: Vec<_> = self.coordinator.running().collect();
        for process in running {
            assert!(self.coordinator.verdict().is_none(), "no verdict while {process} runs");
            self.coordinator.ended(process, ProcessEnd::Exited(0), self.now);
        }
        self.coordinator.verdict().expect("a verdict when all have ended")
    }

    /// Returns the process that decided the verdict, and how it ended.
    fn first_failure(self) -> (u32, ProcessEnd) {
        match self.verdict() {
            Err(Error::ProcessFailed { process, how }) => (process.number(), how),
            other => panic!("no process failed first: {other:?}"),
        }
    }
}

/// A loss of a process.
type Loss = fn(&mut Script);

fn to_all(processes: impl IntoIterator<Item = u32>, message: &ToProcess) -> Vec<(u32, ToProcess)> {
    processes.into_iter().map(|process| (process, message.clone())).collect()
}

fn lost(process: u32, why: &str) -> ToProcess {
    ToProcess::Lost { process: id(process), root: id(process), why: why.into() }
}

fn reported(text: &str) -> ProcessEnd {
    ProcessEnd::Reported(text.into())
}

/// Checks that all processes received the same reason, and returns it.
fn ending(sent: &[(u32, ToProcess)], processes: impl IntoIterator<Item = u32>) -> String {
    let Some((_, ToProcess::Ended { why: Ending::Other(why) })) = sent.first() else { panic!("no end: {sent:?}") };
    let all = to_all(processes, &ToProcess::Ended { why: Ending::Other(why.clone()) });
    assert_eq!(sent, all);
    why.clone()
}

#[test]
fn jobs_of_any_size_end_well() {
    for processes in [1, 2, 3, 4, 5, 63, 64, 65] {
        let script = Script::finished(processes);
        assert!(script.coordinator.is_finished());
        assert!(!script.coordinator.only_stragglers_run());
        assert_eq!(script.coordinator.next_tick(), None, "what comes after `run` may take any time");
        script.verdict().unwrap();
    }
}

#[test]
fn all_processes_learn_which_run_the_same_binary() {
    let others = [
        ToCoordinator::Hello(Greeting { fingerprint: [9; 16], ..greeting() }),
        ToCoordinator::Hello(Greeting { table_hash: 9, ..greeting() }),
    ];
    for other in others {
        let mut script = Script::new(3);
        script.said(2, other);
        script.said(1, hello());
        script.said(0, hello());
        let builds = ToProcess::Builds { first: 0, builds: vec![0, 0, 2] };
        assert_eq!(script.sent(), [to_all(0..3, &builds), to_all(0..3, &start())].concat());
    }
}

#[test]
fn a_missing_process_is_named() {
    let mut script = Script::new(40);
    (0..40).filter(|process| process % 2 == 0).for_each(|process| script.said(process, hello()));
    script.now = START_DEADLINE - Duration::from_nanos(1);
    script.coordinator.tick(script.now);
    assert_eq!(script.sent(), []);
    script.sleep();
    assert_eq!(script.now, START_DEADLINE);
    let why = ending(&script.sent(), 0..40);
    assert!(why.contains("of 40 processes, process 1, process 3, ") && why.contains("and 4 more"), "{why}");
    assert!(matches!(script.verdict(), Err(Error::JobEnded { why: verdict }) if verdict == why));
}

#[test]
fn processes_of_several_machines_get_each_others_cards() {
    let mut script = Script::new(3);
    for (process, host) in [(1, 8), (0, 7), (2, 7)] {
        assert_eq!(script.sent(), []);
        script.said(process, hello_from(host));
    }
    assert_eq!(script.sent(), to_all(0..3, &ToProcess::Exchange));
    for process in [2, 0, 2, 1] {
        assert_eq!(script.sent(), []);
        script.said(process, ToCoordinator::Card { bytes: vec![process as u8; 9] });
    }
    let cards = [7, 8, 7].into_iter().zip(0_u8..);
    let cards = cards.map(|(host, process)| PeerCard { host: [host; 16], card: vec![process; 9] }).collect();
    let peers = ToProcess::Peers { first: 0, cards };
    assert_eq!(script.sent(), [to_all(0..3, &peers), to_all(0..3, &start())].concat());
    script.said(0, ToCoordinator::Card { bytes: vec![9] });
    assert_eq!(script.sent(), []);
    (0..2).for_each(|round| (0..3).for_each(|process| script.idle(process, round, 0, 0)));
    script.verdict().unwrap();
}

#[test]
fn an_unexpected_card_is_ignored() {
    let mut script = Script::new(2);
    script.said(0, ToCoordinator::Card { bytes: vec![1] });
    script.said(0, hello_from(1));
    script.said(1, hello_from(2));
    script.sent();
    script.said(1, ToCoordinator::Card { bytes: vec![2] });
    assert_eq!(script.sent(), [], "the card of process 0 came too soon to be the answer");
}

#[test]
fn a_process_without_a_card_is_named() {
    let mut script = Script::new(3);
    script.now = Duration::from_secs(20);
    (0..3).for_each(|process| script.said(process, hello_from(process as u8)));
    script.sent();
    script.said(1, ToCoordinator::Card { bytes: vec![2] });
    script.sleep();
    assert_eq!(script.now, Duration::from_secs(20) + START_DEADLINE + opening_time(1));
    let why = ending(&script.sent(), 0..3);
    assert!(why.starts_with("process 0, process 2 did not open the fabric"), "{why}");
    assert!(matches!(script.verdict(), Err(Error::JobEnded { .. })));
}

#[test]
fn many_processes_of_a_machine_have_longer_to_open_the_fabric() {
    let mut script = Script::new(40);
    (0..40).for_each(|process| script.said(process, hello_from(u8::from(process >= 30))));
    script.sent();
    script.sleep();
    assert_eq!(script.now, START_DEADLINE + opening_time(30));
    assert!(opening_time(30) > opening_time(1));
    let why = ending(&script.sent(), 0..40);
    assert!(why.contains(&format!("within {:?}", START_DEADLINE + opening_time(30))), "{why}");
}

#[test]
fn a_loss_in_the_exchange_ends_the_job() {
    let mut script = Script::new(2);
    (0..2).for_each(|process| script.said(process, hello_from(process as u8)));
    script.sent();
    script.failed(1, "there is no device");
    assert!(ending(&script.sent(), [0]).contains("before the job began, process 1 failed: there is no device"));
    assert_eq!(script.first_failure(), (1, reported("there is no device")));
}

#[test]
fn the_fabric_decides_whether_cards_are_needed() {
    let said = |fabric: &str, hosts: [u8; 2]| {
        let mut script = Script::new(2);
        for (process, host) in (0..).zip(hosts) {
            let greeting = Greeting { host: [host; 16], fabric: fabric.parse().unwrap(), ..greeting() };
            script.said(process, ToCoordinator::Hello(greeting));
        }
        script.sent().swap_remove(0).1
    };
    for near in ["auto", "shm"] {
        assert_eq!(said(near, [1, 1]), start());
    }
    for far in ["ofi", "ofi:tcp"] {
        assert_eq!(said(far, [1, 1]), ToProcess::Exchange);
        assert_eq!(said(far, [1, 2]), ToProcess::Exchange);
    }
    assert_eq!(said("auto", [1, 2]), ToProcess::Exchange);
    assert_eq!(said("shm", [1, 2]), ToProcess::Ended { why: Ending::Apart { a: id(0), b: id(1) } });
}

#[test]
fn processes_that_disagree_about_the_job_are_named() {
    let shape = JobShape { threads: 4, ..greeting().shape };
    let others = [
        (Greeting { shape, ..greeting() }, "process 2 for one of 3 processes with 4 threads"),
        (Greeting { fabric: FabricChoice::Shm, ..greeting() }, "the fabric auto, process 2 the fabric shm"),
    ];
    for (other, words) in others {
        let mut script = Script::new(3);
        [greeting(), greeting(), other].into_iter().zip(0..).for_each(|(greeting, process)| {
            script.said(process, ToCoordinator::Hello(greeting));
        });
        let why = ending(&script.sent(), 0..3);
        assert!(why.contains(words), "{why}");
    }
}

#[test]
fn the_report_of_missing_processes_lists_those_turned_away() {
    let mut script = Script::new(2);
    script.said(0, hello());
    for _ in 0..2 {
        script.coordinator.turned_away("10.0.0.1 has another secret".into());
    }
    script.sleep();
    let why = ending(&script.sent(), 0..2);
    assert!(
        why.contains("process 1 did not join") && why.contains("(turned away: 10.0.0.1 has another secret)"),
        "{why}"
    );
}

#[test]
fn a_job_can_be_given_up_before_it_has_begun() {
    let mut script = Script::new(2);
    script.said(0, hello());
    script.coordinator.give_up("there are two of process 0".into());
    assert_eq!(ending(&script.sent(), 0..2), "there are two of process 0");
    let mut script = Script::started(2);
    script.coordinator.give_up("too late".into());
    assert_eq!(script.sent(), []);
}

#[test]
fn a_loss_before_the_start_ends_the_job() {
    let losses: [(Loss, ProcessEnd); 4] = [
        (|script| script.ended(1, ProcessEnd::Exited(3)), ProcessEnd::Exited(3)),
        (|script| script.ended(1, ProcessEnd::Killed(9)), ProcessEnd::Killed(9)),
        (|script| script.ended(1, ProcessEnd::Exited(0)), reported("it ended before it joined the job")),
        (|script| script.failed(1, "no memory"), reported("no memory")),
    ];
    for (lose, how) in losses {
        for greeted_before in [false, true] {
            let mut script = Script::new(3);
            script.said(0, hello());
            if greeted_before {
                script.said(1, hello());
            }
            lose(&mut script);
            let why = ending(&script.sent(), [0, 2]);
            assert_eq!(why, format!("before the job began, process 1 {how}"));
            script.said(2, hello());
            assert_eq!(script.sent(), []);
            assert_eq!(script.first_failure(), (1, how.clone()));
        }
    }
}

#[test]
fn a_loss_in_the_run_is_reported_to_the_others() {
    let losses: [(Loss, &str); 4] = [
        (|script| script.ended(1, ProcessEnd::Exited(3)), "exited with status 3"),
        (|script| script.ended(1, ProcessEnd::Killed(9)), "was killed by signal 9"),
        (|script| script.ended(1, ProcessEnd::Exited(0)), "failed: it ended before the job was done"),
        (|script| script.failed(1, "index out of bounds"), "failed: index out of bounds"),
    ];
    for (lose, why) in losses {
        for idle_before in [false, true] {
            let mut script = Script::started(3);
            if idle_before {
                script.idle(1, 0, 8, 8);
            }
            lose(&mut script);
            assert_eq!(script.sent(), to_all([0, 2], &lost(1, why)));
            script.idle(0, 0, 5, 0);
            script.idle(2, 0, 0, 1);
            assert_eq!(script.sent(), [], "an unbalanced count is not repeated at once");
            script.sleep();
            assert_eq!(script.sent(), to_all([0, 2], &ToProcess::Confirm { round: 1 }));
            script.idle(2, 1, 0, 1);
            script.idle(0, 1, 5, 0);
            assert_eq!(script.sent(), to_all([0, 2], &ToProcess::Finish));
            let (process, how) = script.first_failure();
            assert_eq!((process, how.to_string().as_str()), (1, why));
        }
    }
}

#[test]
fn a_loss_while_the_job_settles_starts_the_count_anew() {
    let mut script = Script::started(3);
    (0..3).for_each(|process| script.idle(process, 0, 2, 2));
    script.sent();
    script.idle(0, 1, 2, 2);
    script.ended(2, ProcessEnd::Killed(11));
    assert_eq!(script.sent(), to_all([0, 1], &lost(2, "was killed by signal 11")));
    script.idle(1, 1, 2, 2);
    assert_eq!(script.sent(), to_all([0, 1], &ToProcess::Confirm { round: 2 }), "round 0 counted another job");
    script.idle(0, 2, 2, 2);
    script.idle(1, 2, 2, 2);
    assert_eq!(script.sent(), to_all([0, 1], &ToProcess::Finish));
    assert_eq!(script.first_failure(), (2, ProcessEnd::Killed(11)));
}

#[test]
fn the_lost_process_is_the_verdict() {
    let mut script = Script::started(4);
    script.failed_of_a_loss(1, 2);
    script.failed_of_a_loss(3, 2);
    script.ended(2, ProcessEnd::Killed(9));
    script.failed(0, "it fails later");
    assert_eq!(script.first_failure(), (2, ProcessEnd::Killed(9)));

    // If the process reported as lost turns out to be well, the verdict names the process that
    // reported the loss.
    let mut script = Script::started(3);
    script.failed_of_a_loss(1, 2);
    for (round, process) in [(0, 0), (0, 2), (1, 0), (1, 2)] {
        script.idle(process, round, 0, 0);
    }
    assert_eq!(script.first_failure(), (1, reported("left alone")));
}

#[test]
fn a_chain_of_failures_is_told_by_its_root() {
    let mut script = Script::started(5);
    script.ended(3, ProcessEnd::Killed(9));
    script.failed_of_a_loss(2, 3);
    script.failed_of_a_loss(1, 2);
    let rooted = |process| ToProcess::Lost { process: id(process), root: id(3), why: "was killed by signal 9".into() };
    let sent = [to_all([0, 1, 2, 4], &rooted(3)), to_all([0, 1, 4], &rooted(2)), to_all([0, 4], &rooted(1))].concat();
    assert_eq!(script.sent(), sent);
    // No process of this number exists, or its loss is unknown: the failure is its own root.
    script.said(0, ToCoordinator::Failed { message: "alone".into(), because_of: Some(id(99)) });
    assert_eq!(script.sent(), [(4, lost(0, "failed: alone"))]);
    assert_eq!(script.first_failure(), (3, ProcessEnd::Killed(9)));
}

#[test]
fn the_last_one_awaited_may_be_the_one_that_is_lost() {
    let mut script = Script::started(2);
    script.idle(0, 0, 0, 0);
    script.failed(1, "gone");
    assert_eq!(script.sent(), [(0, lost(1, "failed: gone")), (0, ToProcess::Confirm { round: 1 })]);
    script.idle(0, 1, 0, 0);
    assert_eq!(script.sent(), [(0, ToProcess::Finish)]);
    assert_eq!(script.first_failure(), (1, reported("gone")));
}

#[test]
fn a_loss_between_two_rounds_does_not_disturb_the_pace() {
    let mut script = Script::started(3);
    (0..3).for_each(|process| script.idle(process, 0, 1, 0));
    script.failed(0, "gone");
    assert_eq!(script.sent(), to_all([1, 2], &lost(0, "failed: gone")));
    script.sleep();
    assert_eq!(script.sent(), to_all([1, 2], &ToProcess::Confirm { round: 1 }));
}

#[test]
fn a_failure_after_the_finish_counts_without_a_notice() {
    for end in [ProcessEnd::Exited(2), ProcessEnd::Killed(6)] {
        let mut script = Script::finished(2);
        script.ended(1, end.clone());
        assert_eq!(script.sent(), []);
        assert_eq!(script.first_failure(), (1, end));
    }
    let mut script = Script::finished(2);
    script.failed(0, "a second job");
    script.ended(0, ProcessEnd::Exited(1));
    assert_eq!(script.sent(), []);
    assert_eq!(script.first_failure(), (0, reported("a second job")));
}

#[test]
fn the_first_failure_is_not_masked_by_later_ones() {
    let mut script = Script::started(3);
    script.ended(2, ProcessEnd::Killed(9));
    script.failed(0, "process 2 was lost");
    script.failed(1, "process 2 was lost");
    let sent = script.sent();
    assert_eq!(sent[..2], to_all([0, 1], &lost(2, "was killed by signal 9")));
    assert_eq!(sent[2..], [(1, lost(0, "failed: process 2 was lost"))]);
    assert!(script.coordinator.only_stragglers_run());
    script.ended(0, ProcessEnd::Exited(1));
    script.ended(1, ProcessEnd::Exited(101));
    assert_eq!(script.first_failure(), (2, ProcessEnd::Killed(9)));
}

#[test]
fn a_reported_error_outlasts_the_exit_status() {
    for end in [ProcessEnd::Exited(0), ProcessEnd::Exited(1), ProcessEnd::Exited(101), ProcessEnd::Killed(6)] {
        let mut script = Script::started(2);
        script.failed(1, "the reason");
        script.ended(1, end);
        assert_eq!(script.sent(), [(0, lost(1, "failed: the reason"))], "it is lost once");
        script.idle(0, 0, 0, 0);
        script.idle(0, 1, 0, 0);
        assert_eq!(script.first_failure(), (1, reported("the reason")));
    }
}

#[test]
fn a_count_that_moves_is_repeated_until_it_stands_still() {
    let mut script = Script::started(2);
    script.idle(0, 0, 4, 0);
    script.idle(1, 0, 0, 3);
    for (round, executed) in [(1, 3), (2, 4), (3, 4)] {
        if script.coordinator.messages.is_empty() {
            let before = script.now;
            script.sleep();
            assert!(script.now - before >= PACE, "unbalanced rounds are paced");
        }
        assert_eq!(script.sent(), to_all(0..2, &ToProcess::Confirm { round }));
        script.idle(0, round, 4, 0);
        script.idle(1, round, 0, executed);
    }
    assert_eq!(script.sent(), to_all(0..2, &ToProcess::Finish));
    script.verdict().unwrap();
}

#[test]
fn a_job_without_quiescence_is_ended_with_its_counts() {
    let mut script = Script::started(2);
    script.now = Duration::from_secs(100);
    script.idle(0, 0, 4, 0);
    assert_eq!(script.coordinator.next_tick(), None, "a worker may run as long as it likes");
    script.idle(1, 0, 0, 3);
    let mut round = 0;
    let why = loop {
        script.sleep();
        let sent = script.sent();
        if sent[0].1 != (ToProcess::Confirm { round: round + 1 }) {
            break ending(&sent, 0..2);
        }
        round += 1;
        script.idle(0, round, 4, 0);
        script.idle(1, round, 0, 3);
    };
    assert_eq!(script.now, Duration::from_secs(100) + FINALIZE_DEADLINE);
    assert!(
        why.contains("(process 0 has sent 4 calls and executed 0, process 1 has sent 0 calls and executed 3)"),
        "{why}"
    );
    assert!(matches!(script.verdict(), Err(Error::JobEnded { .. })));
}

#[test]
fn a_process_silent_at_the_end_is_named() {
    let mut script = Script::started(2);
    (0..2).for_each(|process| script.idle(process, 0, 0, 0));
    script.sent();
    script.idle(0, 1, 0, 0);
    script.sleep();
    let why = ending(&script.sent(), 0..2);
    assert!(why.contains("process 1 did not answer)"), "{why}");
}

#[test]
fn repetitions_and_answers_out_of_their_round_are_passed_over() {
    let mut script = Script::new(2);
    script.idle(0, 0, 9, 9);
    script.said(0, hello());
    script.said(0, ToCoordinator::Hello(Greeting { fingerprint: [9; 16], ..greeting() }));
    script.said(1, hello());
    assert_eq!(script.sent(), to_all(0..2, &start()));
    script.said(1, hello());
    script.idle(0, 1, 9, 9);
    script.idle(0, 0, 1, 0);
    script.idle(0, 0, 9, 9);
    assert_eq!(script.sent(), []);
    script.idle(1, 0, 0, 1);
    assert_eq!(script.sent(), to_all(0..2, &ToProcess::Confirm { round: 1 }));
    script.idle(1, 0, 9, 9);
    script.idle(1, 2, 9, 9);
    script.idle(0, 1, 1, 0);
    script.idle(1, 1, 0, 1);
    assert_eq!(script.sent(), to_all(0..2, &ToProcess::Finish));
    script.idle(0, 1, 9, 9);
    script.said(0, hello());
    assert_eq!(script.sent(), []);
    script.verdict().unwrap();
}

#[test]
fn messages_of_lost_peers_are_ignored() {
    let mut script = Script::started(3);
    script.failed(2, "first");
    script.sent();
    script.failed(2, "second");
    script.idle(2, 0, 0, 0);
    script.ended(2, ProcessEnd::Exited(1));
    script.ended(2, ProcessEnd::Killed(9));
    script.idle(2, 0, 0, 0);
    assert_eq!(script.sent(), []);
    assert_eq!(script.first_failure(), (2, reported("first")));
}

#[test]
fn a_process_is_a_straggler_once_all_others_have_ended() {
    let mut script = Script::started(2);
    script.failed(1, "it hangs");
    assert!(!script.coordinator.only_stragglers_run());
    (0..2).for_each(|round| script.idle(0, round, 0, 0));
    assert!(!script.coordinator.only_stragglers_run(), "process 0 was ordered to return, and may take its time");
    script.ended(0, ProcessEnd::Exited(0));
    assert!(script.coordinator.only_stragglers_run());
    assert_eq!(script.coordinator.running().collect::<Vec<_>>(), [id(1)]);
}

#[test]
fn survivors_that_do_not_answer_are_stragglers() {
    let mut script = Script::started(3);
    script.failed(0, "it waited in vain");
    script.sent();
    // Workers may run as long as they like.
    for answers in [1, 2, 1] {
        script.sleep();
        assert_eq!(script.sent(), to_all([1, 2], &ToProcess::Probe));
        script.said(answers, ToCoordinator::Alive);
    }
    script.sleep();
    assert_eq!(script.sent(), to_all([1, 2], &ToProcess::Probe));
    script.sleep();
    let why = ending(&script.sent(), [1, 2]);
    assert!(why.contains("process 1, process 2 did not answer"), "{why}");
    assert!(script.coordinator.only_stragglers_run());
    assert_eq!(script.first_failure(), (0, reported("it waited in vain")));
}

/// An event, plausible or not.
#[derive(Clone, Debug)]
enum Happening {
    Said(u32, ToCoordinator),
    Ended(u32, ProcessEnd),
    Passed(Duration),
    /// The process obeys its next order.
    Obeys(u32),
}

fn happening(processes: u32) -> impl Strategy<Value = Happening> {
    let counts = (0..3_u32, 0..3_u64, 0..3_u64);
    let said = prop_oneof![
        4 => Just(hello()),
        1 => (0..2_u8).prop_map(hello_from),
        1 => any::<u8>().prop_map(|byte| ToCoordinator::Card { bytes: vec![byte] }),
        1 => Just(ToCoordinator::Hello(Greeting { fingerprint: [3; 16], ..greeting() })),
        4 => counts.prop_map(|(round, sent, executed)| ToCoordinator::Idle { round, sent, executed }),
        1 => prop::option::of(0..processes).prop_map(|lost| {
            ToCoordinator::Failed { message: "it said so".into(), because_of: lost.map(id) }
        }),
    ];
    let end = prop_oneof![Just(ProcessEnd::Exited(0)), Just(ProcessEnd::Exited(1)), Just(ProcessEnd::Killed(9))];
    let process = 0..processes;
    prop_oneof![
        6 => (process.clone(), said).prop_map(|(process, said)| Happening::Said(process, said)),
        1 => (process.clone(), end).prop_map(|(process, end)| Happening::Ended(process, end)),
        1 => (0..40_000_u64).prop_map(|ms| Happening::Passed(Duration::from_millis(ms))),
        12 => process.prop_map(Happening::Obeys),
    ]
}

/// A correct process: it greets, is idle, answers, and ends when it is ordered to.
#[derive(Clone, Debug, Default)]
struct Dutiful {
    to_say: VecDeque<ToCoordinator>,
    returns: bool,
    ended: bool,
}

impl Dutiful {
    fn new() -> Self {
        Self { to_say: [hello()].into(), ..Self::default() }
    }

    fn sent(&mut self, message: ToProcess) {
        let idle = |round| ToCoordinator::Idle { round, sent: 1, executed: 1 };
        match message {
            ToProcess::Start { .. } => self.to_say.push_back(idle(0)),
            ToProcess::Confirm { round } => self.to_say.push_back(idle(round)),
            ToProcess::Probe => self.to_say.push_back(ToCoordinator::Alive),
            ToProcess::Exchange => self.to_say.push_back(ToCoordinator::Card { bytes: vec![1] }),
            ToProcess::Finish | ToProcess::Ended { .. } => self.returns = true,
            ToProcess::Lost { .. } | ToProcess::Peers { .. } | ToProcess::Builds { .. } | ToProcess::Ask { .. } => {}
        }
    }
}

/// A coordinator and its processes.
struct World {
    script: Script,
    processes: Vec<Dutiful>,
}

impl World {
    fn new(processes: u32) -> Self {
        Self { script: Script::new(processes), processes: vec![Dutiful::new(); processes as usize] }
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Said(process, said) => self.script.said(process, said),
            Happening::Ended(process, end) => self.end(process, end),
            Happening::Passed(time) => {
                self.script.now += time;
                self.script.coordinator.tick(self.script.now);
            }
            Happening::Obeys(process) => {
                self.obey(process);
            }
        }
        self.deliver();
    }

    fn end(&mut self, process: u32, end: ProcessEnd) {
        self.processes[process as usize].ended = true;
        self.script.ended(process, end);
    }

    fn deliver(&mut self) {
        for (process, message) in self.script.sent() {
            self.processes[process as usize].sent(message);
        }
    }

    /// Makes a process obey its next order. Returns `false` if it has none.
    fn obey(&mut self, process: u32) -> bool {
        let state = &mut self.processes[process as usize];
        if state.ended {
            false
        } else if let Some(said) = state.to_say.pop_front() {
            self.script.said(process, said);
            true
        } else if state.returns {
            self.end(process, ProcessEnd::Exited(0));
            true
        } else {
            false
        }
    }

    /// Lets all processes obey until there is a verdict. Lets time pass when no process has an
    /// order, and kills stragglers. Returns whether there was a verdict.
    fn comes_to_a_verdict(&mut self) -> bool {
        for _ in 0..10_000 {
            self.deliver();
            if self.script.coordinator.verdict().is_some() {
                return true;
            }
            let mut anybody = false;
            for process in 0..self.processes.len() as u32 {
                anybody |= self.obey(process);
            }
            if anybody || !self.script.coordinator.messages.is_empty() {
                continue;
            }
            if self.script.coordinator.only_stragglers_run() {
                let running: Vec<_> = self.script.coordinator.running().collect();
                running.into_iter().for_each(|process| self.end(process.number(), ProcessEnd::Killed(9)));
            } else if self.script.coordinator.next_tick().is_some() {
                self.script.sleep();
            } else {
                return false;
            }
        }
        false
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn every_history_reaches_a_verdict(
        (processes, happenings) in (1..6_u32).prop_flat_map(|processes| {
            (Just(processes), prop::collection::vec(happening(processes), 0..80))
        }),
    ) {
        let mut world = World::new(processes);
        for happening in happenings {
            world.happen(happening);
        }
        prop_assert!(world.comes_to_a_verdict(), "{:?}", world.script.coordinator);
    }

    #[test]
    fn losses_at_any_moment_do_not_stop_the_others(
        processes in 2..6_u32,
        steps in prop::collection::vec((0..6_u32, 0..12_u32), 0..120),
    ) {
        let mut world = World::new(processes);
        let mut first_killed = None;
        for (process, what) in steps {
            let process = process % processes;
            if what == 0 && !world.processes[process as usize].ended && !world.processes[process as usize].returns {
                first_killed.get_or_insert(process);
                world.happen(Happening::Ended(process, ProcessEnd::Killed(9)));
            } else {
                world.happen(Happening::Obeys(process));
            }
        }
        prop_assert!(world.comes_to_a_verdict(), "{:?}", world.script.coordinator);
        match (first_killed, world.script.coordinator.verdict().unwrap()) {
            (None, verdict) => prop_assert!(verdict.is_ok(), "{verdict:?}"),
            (Some(killed), Err(Error::ProcessFailed { process, how })) => {
                prop_assert_eq!((process.number(), how), (killed, ProcessEnd::Killed(9)));
            }
            (Some(_), other) => prop_assert!(false, "{other:?}"),
        }
    }
}
